"""Models, batches and losses as built: declared shapes hold, losses equal formulas written out here, seeds decide all."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from retainprof.errors import WorkloadError
from retainprof.scenario import LOSSES, MODELS, Imports, Scenario
from retainprof.scenario.build import Batch, LossFunction, build_batch, build_losses, build_model
from retainprof.scenario.models import RegisteredModel

HEADS = {"a": 3, "b": 1}
MODEL_OPTIONS: dict[str, dict[str, Any]] = {
    "mlp": {"inputs": 5, "trunk": (6, 7), "heads": HEADS},
    "multitask_mlp": {"inputs": 5, "trunk": (6, 7), "heads": HEADS},
    "conv": {"image": 8, "trunk": (4, 6), "blocks": 2, "heads": HEADS},
    "transformer": {
        "vocabulary": 11,
        "length": 4,
        "width": 8,
        "attention_heads": 2,
        "heads": HEADS,
        "per_step": ("a",),
    },
    "lstm": {"inputs": 5, "length": 4, "hidden": 6, "heads": HEADS, "per_step": ("a",)},
    "gan": {},
    "actor_critic": {},
    "pinn": {},
    "style_transfer": {"image": 8},
    "maml": {},
}


def scenario(model: dict[str, Any], losses: dict[str, Any] | None = None, **more: Any) -> Scenario:
    data = {
        "schema": 1,
        "name": "t",
        "model": model,
        "batch": {"kind": "random", "size": 4},
        "losses": losses or {"l": {"kind": "sum", "output": next(iter(HEADS))}},
        "strategies": ["summed"],
        **more,
    }
    return Scenario.model_validate(data)


def built(s: Scenario) -> tuple[nn.Module, Batch, dict[str, LossFunction]]:
    imports = Imports()
    model = build_model(s, imports)
    return model, build_batch(s, model, imports), build_losses(s, imports)


def size_of(kind: str) -> int:
    return 1 if kind == "style_transfer" else 4


@pytest.mark.parametrize("kind", list(MODELS))
def test_models_are_what_they_declare(kind: str) -> None:
    s = scenario({"kind": kind, **MODEL_OPTIONS[kind]}, batch={"kind": "random", "size": size_of(kind)})
    model, batch, _ = built(s)
    declared = s.model
    assert isinstance(declared, RegisteredModel)
    outputs = model(*batch.inputs)
    sized = {name: (size_of(kind), *shape) for name, shape in declared.outputs().items()}
    if kind == "actor_critic":
        sized["log_temperature"] = ()  # a parameter, no example's
    assert {name: tuple(output.shape) for name, output in outputs.items()} == sized
    there = {name for name, _ in model.named_modules()} | {name for name, _ in model.named_parameters()}
    assert set(declared.submodules()) <= there
    total = sum(output.square().sum() for output in outputs.values() if output.requires_grad)
    assert isinstance(total, Tensor)
    torch.autograd.backward(total)
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("kind", ["mlp", "multitask_mlp", "conv", "transformer", "lstm"])
def test_every_head_hangs_on_the_trunk(kind: str) -> None:
    model, batch, _ = built(scenario({"kind": kind, **MODEL_OPTIONS[kind]}))
    seen: list[Tensor] = []

    def detached(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        seen.append(output.detach().requires_grad_())
        return seen[-1]

    model.get_submodule("trunk").register_forward_hook(detached)
    outputs = model(*batch.inputs)
    assert len(seen) == 1
    for output in outputs.values():
        (gradient,) = torch.autograd.grad(output.sum(), seen[0], retain_graph=True)
        assert bool(gradient.abs().sum() > 0)


def test_the_seed_decides_everything() -> None:
    spec = {"kind": "multitask_mlp", **MODEL_OPTIONS["multitask_mlp"]}
    losses = {"a": {"kind": "cross_entropy", "output": "a"}, "b": {"kind": "mse", "output": "b"}}

    def values(seed: int) -> list[Tensor]:
        model, batch, functions = built(scenario(spec, losses, seed=seed))
        outputs = model(*batch.inputs)
        return [*model.parameters(), *batch.inputs, *(f(outputs, batch.targets) for f in functions.values())]

    first, again, other = values(0), values(0), values(1)
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not any(torch.equal(x, y) for x, y in zip(first, other, strict=True))


def test_the_batch_does_not_depend_on_the_model() -> None:
    spec = MODEL_OPTIONS["mlp"]
    one, two = (built(scenario({"kind": "mlp", **spec, "trunk": trunk}))[1] for trunk in ((6,), (9, 9)))
    assert torch.equal(one.inputs[0], two.inputs[0])


# --- losses --------------------------------------------------------------------------------------------------------------


def picked(log_p: Tensor, classes: Tensor) -> Tensor:
    return torch.stack([row[c] for row, c in zip(log_p, classes, strict=True)])


def log_softmax(y: Tensor) -> Tensor:
    return y - y.exp().sum(-1, keepdim=True).log()


def margins(y: Tensor, t: Tensor) -> Tensor:
    y = y.detach()
    rows = [
        sum(max(0.0, 1.0 - float(row[c]) + float(row[j])) for j in range(len(row)) if j != int(c)) / len(row)
        for row, c in zip(y, t, strict=True)
    ]
    return torch.tensor(rows).mean()


def bce(y: Tensor, t: Tensor) -> Tensor:
    p = 1 / (1 + (-y).exp())
    return -(t * p.log() + (1 - t) * (1 - p).log()).mean()


def huber(y: Tensor, t: Tensor) -> Tensor:
    d = (y - t).abs()
    return torch.where(d < 1, d * d / 2, d - 0.5).mean()


FORMULAS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda y, t: -picked(log_softmax(y), t).mean(),
    "nll": lambda y, t: -picked(log_softmax(y), t).mean(),
    "multi_margin": margins,
    "kl_div": lambda y, t: (t * (t.log() - log_softmax(y))).sum() / len(y),
    "mse": lambda y, t: (y - t).pow(2).mean(),
    "l1": lambda y, t: (y - t).abs().mean(),
    "smooth_l1": huber,
    "huber": huber,
    "bce": bce,
    "bce_with_logits": bce,
    "multilabel_soft_margin": bce,
    "soft_margin": lambda y, t: (1 + (-t * y).exp()).log().mean(),
    "hinge_embedding": lambda y, t: torch.where(t > 0, y, (1 - y).clamp(min=0)).mean(),
    "poisson_nll": lambda y, t: (y.exp() - t * y).mean(),
    "gaussian_nll": lambda y, t: ((y - t) ** 2).mean() / 2,
}
WITHOUT_TARGET: dict[str, tuple[dict[str, Any], Callable[[Tensor], Tensor]]] = {
    "sum": ({}, lambda y: y.flatten().dot(torch.ones(y.numel()))),
    "mean": ({}, lambda y: y.sum() / y.numel()),
    "mean_square": ({}, lambda y: y.flatten().dot(y.flatten()) / y.numel()),
    "softplus": ({"sign": -1}, lambda y: (1 + (-y).exp()).log().mean()),
    "element": ({"index": 2}, lambda y: y[0][2]),
}


@pytest.mark.parametrize("kind", list(FORMULAS))
def test_losses_with_targets(kind: str) -> None:
    spec = {"kind": "multitask_mlp", **MODEL_OPTIONS["multitask_mlp"]}
    model, batch, functions = built(scenario(spec, {"l": {"kind": kind, "output": "a"}}))
    outputs, target = model(*batch.inputs), batch.targets["l"]
    value = functions["l"](outputs, batch.targets)
    assert value.shape == ()
    assert value.requires_grad
    torch.testing.assert_close(value, FORMULAS[kind](outputs["a"], target), check_dtype=False)


@pytest.mark.parametrize("kind", list(WITHOUT_TARGET))
def test_losses_without_targets(kind: str) -> None:
    options, formula = WITHOUT_TARGET[kind]
    spec = {"kind": "multitask_mlp", **MODEL_OPTIONS["multitask_mlp"]}
    model, batch, functions = built(scenario(spec, {"l": {"kind": kind, "output": "a", **options}}))
    outputs = model(*batch.inputs)
    assert batch.targets == {}
    torch.testing.assert_close(functions["l"](outputs, batch.targets), formula(outputs["a"]))


def test_every_registered_loss_is_tried_here() -> None:
    several = {"mse_between", "gram_mse", "gan_discriminator", "sac_actor", "sac_temperature", "input_contrast"}
    assert set(LOSSES) == {*FORMULAS, *WITHOUT_TARGET, *several}


def test_targets_fit_their_losses() -> None:
    spec = {"kind": "multitask_mlp", **MODEL_OPTIONS["multitask_mlp"]}
    kinds = {k: {"kind": k, "output": "a"} for k in ("cross_entropy", "bce", "soft_margin", "poisson_nll", "kl_div")}
    _, batch, _ = built(scenario(spec, kinds, batch={"kind": "random", "size": 500}))
    t = batch.targets
    assert t["cross_entropy"].unique().tolist() == [0, 1, 2]
    assert t["bce"].unique().tolist() == [0.0, 1.0]
    assert t["soft_margin"].unique().tolist() == [-1.0, 1.0]
    assert bool((t["poisson_nll"] >= 0).all())
    assert bool((t["poisson_nll"] == t["poisson_nll"].round()).all())
    torch.testing.assert_close(t["kl_div"].sum(-1), torch.ones(500))


def test_cross_entropy_of_every_step() -> None:
    losses = {"a": {"kind": "cross_entropy", "output": "a"}}
    model, batch, functions = built(scenario({"kind": "lstm", **MODEL_OPTIONS["lstm"]}, losses))
    outputs = model(*batch.inputs)
    y, t = outputs["a"].detach(), batch.targets["a"]
    assert (y.shape, t.shape) == ((4, 4, 3), (4, 4))
    by_hand = -sum(float(log_softmax(y[i, j])[t[i, j]]) for i in range(4) for j in range(4)) / 16
    assert math.isclose(float(functions["a"](outputs, batch.targets).detach()), by_hand, rel_tol=1e-5)


def test_weights_multiply_and_one_multiplies_nothing() -> None:
    spec = {"kind": "multitask_mlp", **MODEL_OPTIONS["multitask_mlp"]}
    losses = {"one": {"kind": "sum", "output": "b"}, "three": {"kind": "sum", "output": "b", "weight": 3}}
    model, batch, functions = built(scenario(spec, losses))
    outputs = model(*batch.inputs)
    one, three = (functions[name](outputs, batch.targets) for name in losses)
    assert three.item() == 3 * one.item()
    assert [type(loss.grad_fn).__name__ for loss in (one, three)] == ["SumBackward0", "MulBackward0"]


def test_losses_of_several_outputs() -> None:
    image, other = torch.randn(1, 2, 3, 3), torch.randn(1, 2, 3, 3)

    def gram(x: Tensor) -> list[float]:
        return [float((x[0, i] * x[0, j]).sum()) / 18 for i in range(2) for j in range(2)]

    style = sum((a - b) ** 2 for a, b in zip(gram(image), gram(other), strict=True)) / 4
    losses = {
        "style": {"kind": "gram_mse", "output": "image1", "reference": "style1"},
        "content": {"kind": "mse_between", "output": "image1", "reference": "style1"},
    }
    functions = build_losses(scenario({"kind": "style_transfer"}, losses), Imports())
    outputs = {"image1": image, "style1": other}
    assert math.isclose(float(functions["style"](outputs, None)), style, rel_tol=1e-5)
    torch.testing.assert_close(functions["content"](outputs, None), (image - other).square().mean())


def test_losses_of_the_everyday_models() -> None:
    losses = {"d": {"kind": "gan_discriminator"}, "a": {"kind": "sac_actor"}, "t": {"kind": "sac_temperature"}}
    functions = build_losses(scenario({"kind": "gan"}, losses), Imports())
    real, fake = torch.tensor([[0.5], [-1.0]]), torch.tensor([[2.0], [0.0]])
    softplus = [math.log(1 + math.exp(x)) for x in (-0.5, 1.0, 2.0, 0.0)]
    by_hand = sum(softplus[:2]) / 2 + sum(softplus[2:]) / 2
    assert math.isclose(float(functions["d"]({"real": real, "fake": fake}, None)), by_hand, rel_tol=1e-6)
    log_alpha = torch.tensor(0.3, requires_grad=True)
    log_prob = torch.tensor([1.0, -2.0], requires_grad=True)
    value = torch.tensor([0.5, 0.25], requires_grad=True)
    outputs = {"log_prob": log_prob, "q_policy": value, "log_temperature": log_alpha}
    actor, temperature = functions["a"](outputs, None), functions["t"](outputs, None)
    assert math.isclose(actor.item(), math.exp(0.3) * -0.5 - 0.375, rel_tol=1e-6)
    assert math.isclose(temperature.item(), -0.3 * (-0.5 - 4), rel_tol=1e-6)
    torch.autograd.backward(actor)
    assert log_alpha.grad is None
    log_prob.grad = None
    torch.autograd.backward(temperature)
    assert log_prob.grad is None
    assert log_alpha.grad is not None


def test_the_policys_log_probability_is_that_of_the_squashed_gaussian() -> None:
    model, batch, _ = built(scenario({"kind": "actor_critic"}))
    observation, _, noise = batch.inputs
    mean, log_std = model.get_submodule("policy")(model.get_submodule("encoder")(observation)).chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform(cache_size=1))
    action = torch.tanh(mean + log_std.exp() * noise)
    expected = squashed.log_prob(action).sum(-1)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(model(*batch.inputs)["log_prob"], expected, rtol=1e-3, atol=1e-3)


def test_the_heat_equations_residual_by_finite_differences() -> None:
    s = scenario({"kind": "pinn", "dtype": "float64", "hidden": 6, "layers": 2, "diffusivity": 0.3})
    model, batch, _ = built(s)
    net = model.get_submodule("net")
    x, h = batch.inputs[0], 1e-4
    dx, dt = torch.tensor([h, 0.0], dtype=torch.float64), torch.tensor([0.0, h], dtype=torch.float64)
    u_t = (net(x + dt) - net(x - dt)) / (2 * h)
    u_xx = (net(x + dx) - 2 * net(x) + net(x - dx)) / h**2
    torch.testing.assert_close(model(*batch.inputs)["residual"], u_t - 0.3 * u_xx, rtol=1e-4, atol=1e-6)


# --- options -------------------------------------------------------------------------------------------------------------


def test_the_historical_benchmark() -> None:
    spec = {"kind": "mlp", "inputs": 16, "trunk": (32, 32), "heads": {"y": 16}}
    losses = {"half": {"kind": "input_contrast", "c": 0.5}, "one": {"kind": "input_contrast", "c": 1}}
    uniform = {"kind": "random", "size": 1, "values": "uniform", "requires_grad": True}
    model, batch, functions = built(scenario(spec, losses, batch=uniform))
    (x,) = batch.inputs
    assert x.is_leaf
    assert x.requires_grad
    assert bool(((x >= 0) & (x < 1)).all())
    outputs = {name: output.detach() for name, output in model(x).items()}
    for name, c in (("half", 0.5), ("one", 1.0)):
        by_hand = sum(float(y) * (c - float(v)) for y, v in zip(outputs["y"][0], x[0].detach(), strict=True))
        assert math.isclose(functions[name](outputs, batch.targets).item(), by_hand, rel_tol=1e-4, abs_tol=1e-6)
    assert all(target is x for target in batch.targets.values())
    layers = [type(layer).__name__ for layer in model.get_submodule("trunk").children()]
    assert layers == ["Linear", "ReLU", "Linear", "ReLU"]


@pytest.mark.filterwarnings("ignore:Complex modules")
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "complex64", "complex128"])
def test_dtypes(dtype: str) -> None:
    spec = {"kind": "mlp", **MODEL_OPTIONS["mlp"], "activation": "tanh", "dtype": dtype}
    losses = {"l": {"kind": "mean_square", "output": "a"}, "d": {"kind": "l1", "output": "b"}}
    model, batch, functions = built(scenario(spec, losses))
    outputs = model(*batch.inputs)
    wanted = getattr(torch, dtype)
    assert {p.dtype for p in model.parameters()} == {wanted}
    assert outputs["a"].dtype == batch.inputs[0].dtype == wanted
    total = functions["l"](outputs, batch.targets) + functions["d"](outputs, batch.targets)
    assert not total.is_complex()
    torch.autograd.backward(total)
    assert all(p.grad is not None and p.grad.dtype == wanted for p in model.parameters())


def test_the_batchs_own_dtype() -> None:
    _, batch, _ = built(
        scenario({"kind": "mlp", **MODEL_OPTIONS["mlp"]}, batch={"kind": "random", "size": 2, "dtype": "float64"})
    )
    assert batch.inputs[0].dtype == torch.float64


def test_frozen_parts() -> None:
    spec = {"kind": "multitask_mlp", **MODEL_OPTIONS["multitask_mlp"], "frozen": ("heads.a", "trunk.0.weight")}
    model, _, _ = built(scenario(spec))
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {"heads.a.weight", "heads.a.bias", "trunk.0.weight"}


def test_a_prefix_is_a_whole_name() -> None:
    spec = {"kind": "multitask_mlp", "inputs": 2, "trunk": (3,), "heads": {"a": 1, "ab": 1}, "frozen": ("heads.a",)}
    model, _, _ = built(scenario(spec))
    assert {n for n, p in model.named_parameters() if not p.requires_grad} == {"heads.a.weight", "heads.a.bias"}


def test_sparse_embeddings() -> None:
    spec = {"kind": "transformer", **MODEL_OPTIONS["transformer"], "sparse": True}
    model, batch, functions = built(scenario(spec))
    torch.autograd.backward(functions["l"](model(*batch.inputs), batch.targets))
    gradient = model.get_parameter("trunk.embedding.weight").grad
    assert gradient is not None
    assert gradient.is_sparse


def test_detached_gan_leaves_the_generator_alone() -> None:
    losses = {"d": {"kind": "gan_discriminator"}}
    for detach in (False, True):
        model, batch, functions = built(scenario({"kind": "gan", "detach": detach}, losses))
        torch.autograd.backward(functions["d"](model(*batch.inputs), batch.targets))
        reached = {name.partition(".")[0] for name, p in model.named_parameters() if p.grad is not None}
        assert reached == ({"discriminator"} if detach else {"discriminator", "generator"})


def test_mamls_inner_step_by_hand() -> None:
    spec = {"kind": "maml", "inputs": 3, "hidden": 2, "steps": 1, "rate": 0.5}
    for first_order in (False, True):
        model, batch, _ = built(scenario({**spec, "first_order": first_order}))
        support, answers, query = batch.inputs
        hidden, out = (model.get_parameter(n).detach().double() for n in ("hidden", "out"))
        h = torch.tanh(support.double() @ hidden.T)
        error = 2 * (h @ out.T - answers.double()) / len(support)
        d_out, d_hidden = error.T @ h, ((error @ out) * (1 - h * h)).T @ support.double()
        adapted = torch.tanh(query.double() @ (hidden - 0.5 * d_hidden).T) @ (out - 0.5 * d_out).T
        torch.testing.assert_close(model(*batch.inputs)["query"], adapted.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        ({"frozen": ("trunk.7",)}, {}, "model.frozen: no parameter is called 'trunk.7'"),
        ({}, {"shared": "trunk.9"}, "shared: the model has no submodule 'trunk.9'"),
        ({"heads": {"a": 1, "forward": 1}}, {}, "a head cannot be called 'forward'"),
        ({}, {"strategies": [{"kind": "summed", "checkpoint": "trnk"}]}, "strategy summed: checkpoint"),
        ({}, {"losses": {"l": {"kind": "sum", "output": "a", "owns": ("trunk.5",)}}}, "losses.l.owns"),
    ],
)
def test_names_that_only_the_model_knows(model: dict[str, Any], more: dict[str, Any], message: str) -> None:
    s = scenario({"kind": "multitask_mlp", **MODEL_OPTIONS["multitask_mlp"], **model})
    s = s.model_copy(update=dict(scenario(s.model.model_dump(), **more)))
    with pytest.raises(WorkloadError, match=message):
        build_model(s, Imports())


def test_a_width_that_attention_cannot_share_out() -> None:
    spec = {"kind": "transformer", **MODEL_OPTIONS["transformer"], "width": 9}
    with pytest.raises(WorkloadError, match="width 9 cannot be shared out among 2 attention heads"):
        build_model(scenario(spec), Imports())


def test_only_build_and_the_zoo_import_torch() -> None:
    root = Path(__file__).resolve().parents[2] / "retainprof" / "scenario"
    importing = {
        f.name for f in root.glob("*.py") if any(row.startswith("import torch") for row in f.read_text().splitlines())
    }
    assert importing == {"build.py", "targets.py"}
