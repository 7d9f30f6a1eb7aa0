"""Registered losses of one output: those of ``torch.nn.functional``, and a few that need no target."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from retainprof.scenario.losses import LOSSES, OutputLoss
from retainprof.scenario.part import Finite

Unit = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@LOSSES.register
class CrossEntropy(OutputLoss):
    """``F.cross_entropy`` of logits, with class indices."""

    summary = "F.cross_entropy of logits and class indices"
    target_values = "classes"
    kind: Literal["cross_entropy"] = "cross_entropy"
    label_smoothing: Unit = 0.0


@LOSSES.register
class Nll(OutputLoss):
    """``F.nll_loss`` of the output's log-softmax, with class indices."""

    summary = "F.nll_loss of the output's log_softmax"
    target_values = "classes"
    kind: Literal["nll", "nll_loss"] = "nll"


@LOSSES.register
class MultiMargin(OutputLoss):
    """``F.multi_margin_loss``, with class indices."""

    summary = "F.multi_margin_loss of scores and class indices"
    target_values = "classes"
    kind: Literal["multi_margin", "multi_margin_loss"] = "multi_margin"
    margin: Positive = 1.0


@LOSSES.register
class KlDiv(OutputLoss):
    """``F.kl_div`` (batchmean) of the output's log-softmax, with probabilities."""

    summary = "F.kl_div of the output's log_softmax and probabilities"
    target_values = "probabilities"
    kind: Literal["kl_div"] = "kl_div"


@LOSSES.register
class Mse(OutputLoss):
    """``F.mse_loss``."""

    summary = "F.mse_loss"
    kind: Literal["mse", "mse_loss"] = "mse"


@LOSSES.register
class L1(OutputLoss):
    """``F.l1_loss``; for complex outputs too."""

    summary = "F.l1_loss"
    kind: Literal["l1", "l1_loss"] = "l1"


@LOSSES.register
class SmoothL1(OutputLoss):
    """``F.smooth_l1_loss``."""

    summary = "F.smooth_l1_loss"
    kind: Literal["smooth_l1", "smooth_l1_loss"] = "smooth_l1"
    beta: Positive = 1.0


@LOSSES.register
class Huber(OutputLoss):
    """``F.huber_loss``."""

    summary = "F.huber_loss"
    kind: Literal["huber", "huber_loss"] = "huber"
    delta: Positive = 1.0


@LOSSES.register
class Bce(OutputLoss):
    """``F.binary_cross_entropy`` of the output's sigmoid, with zeros and ones."""

    summary = "F.binary_cross_entropy of the output's sigmoid"
    target_values = "binary"
    kind: Literal["bce", "binary_cross_entropy"] = "bce"


@LOSSES.register
class BceWithLogits(OutputLoss):
    """``F.binary_cross_entropy_with_logits``, with zeros and ones."""

    summary = "F.binary_cross_entropy_with_logits"
    target_values = "binary"
    kind: Literal["bce_with_logits", "binary_cross_entropy_with_logits"] = "bce_with_logits"


@LOSSES.register
class MultilabelSoftMargin(OutputLoss):
    """``F.multilabel_soft_margin_loss``, with zeros and ones."""

    summary = "F.multilabel_soft_margin_loss"
    target_values = "binary"
    kind: Literal["multilabel_soft_margin", "multilabel_soft_margin_loss"] = "multilabel_soft_margin"


@LOSSES.register
class SoftMargin(OutputLoss):
    """``F.soft_margin_loss``, with -1 and 1."""

    summary = "F.soft_margin_loss"
    target_values = "signs"
    kind: Literal["soft_margin", "soft_margin_loss"] = "soft_margin"


@LOSSES.register
class HingeEmbedding(OutputLoss):
    """``F.hinge_embedding_loss``, with -1 and 1."""

    summary = "F.hinge_embedding_loss"
    target_values = "signs"
    kind: Literal["hinge_embedding", "hinge_embedding_loss"] = "hinge_embedding"
    margin: Positive = 1.0


@LOSSES.register
class PoissonNll(OutputLoss):
    """``F.poisson_nll_loss`` of the log of the rate, with counts."""

    summary = "F.poisson_nll_loss of a log rate and counts"
    target_values = "counts"
    kind: Literal["poisson_nll", "poisson_nll_loss"] = "poisson_nll"


@LOSSES.register
class GaussianNll(OutputLoss):
    """``F.gaussian_nll_loss`` at a fixed variance."""

    summary = "F.gaussian_nll_loss at a fixed variance"
    kind: Literal["gaussian_nll", "gaussian_nll_loss"] = "gaussian_nll"
    var: Positive = 1.0


@LOSSES.register
class Sum(OutputLoss):
    """``output.sum()``, without a target."""

    summary = "output.sum(), without a target"
    target_values = "none"
    kind: Literal["sum"] = "sum"


@LOSSES.register
class Mean(OutputLoss):
    """``output.mean()``, without a target."""

    summary = "output.mean(), without a target"
    target_values = "none"
    kind: Literal["mean"] = "mean"


@LOSSES.register
class MeanSquare(OutputLoss):
    """Mean of ``|output|^2``, without a target; for complex outputs too."""

    summary = "mean of |output|^2, without a target (complex too)"
    target_values = "none"
    kind: Literal["mean_square"] = "mean_square"


@LOSSES.register
class Softplus(OutputLoss):
    """Mean of ``F.softplus(sign * output)``, without a target: the logistic loss of a GAN."""

    summary = "mean of F.softplus(sign * output), without a target"
    target_values = "none"
    kind: Literal["softplus"] = "softplus"
    sign: Literal[1, -1] = 1


@LOSSES.register
class Element(OutputLoss):
    """``output[0, index]``: one element of the first example, as in a Jacobian row by row."""

    summary = "one element of the first example, without a target"
    target_values = "none"
    kind: Literal["element"] = "element"
    index: Annotated[int, Field(ge=0)]


@LOSSES.register
class InputContrast(OutputLoss):
    """``(output * (c - input.clamp(0, 1))).sum()``: depends on the model's first input too."""

    summary = "(output * (c - input.clamp(0, 1))).sum(), of the historical benchmark"
    target_values = "input"
    kind: Literal["input_contrast"] = "input_contrast"
    c: Finite
