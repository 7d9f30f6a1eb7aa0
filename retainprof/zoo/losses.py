"""The losses that scenarios name: ``fn(output, target) -> scalar``, or of outputs alone. Classes are in the last dimension."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def _rows(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(batch, steps, classes) as (batch * steps, classes), and its class indices likewise."""
    return (output, target) if output.dim() <= 2 else (output.flatten(0, -2), target.flatten())


def cross_entropy(output: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Of logits (..., classes) with class indices (...)."""
    return F.cross_entropy(*_rows(output, target), label_smoothing=label_smoothing)


def nll(output: Tensor, target: Tensor) -> Tensor:
    """Of the log-softmax of scores (..., classes) with class indices (...)."""
    rows, classes = _rows(output, target)
    return F.nll_loss(F.log_softmax(rows, dim=-1), classes)


def multi_margin(output: Tensor, target: Tensor, margin: float = 1.0) -> Tensor:
    """Of scores (..., classes) with class indices (...)."""
    return F.multi_margin_loss(*_rows(output, target), margin=margin)


def kl_div(output: Tensor, target: Tensor) -> Tensor:
    """Of the log-softmax of scores (batch, classes) with probabilities, summed over classes."""
    return F.kl_div(F.log_softmax(output, dim=-1), target, reduction="batchmean")


def bce(output: Tensor, target: Tensor) -> Tensor:
    """Of the sigmoid of scores with zeros and ones, of the same shape."""
    return F.binary_cross_entropy(output.sigmoid(), target)


mse = F.mse_loss
l1 = F.l1_loss
smooth_l1 = F.smooth_l1_loss
huber = F.huber_loss
bce_with_logits = F.binary_cross_entropy_with_logits
multilabel_soft_margin = F.multilabel_soft_margin_loss
soft_margin = F.soft_margin_loss
hinge_embedding = F.hinge_embedding_loss
poisson_nll = F.poisson_nll_loss
gaussian_nll = F.gaussian_nll_loss


def sum(output: Tensor) -> Tensor:  # noqa: A001 - the kind's name
    """Sum of all elements."""
    return output.sum()


def mean(output: Tensor) -> Tensor:
    """Mean of all elements."""
    return output.mean()


def mean_square(output: Tensor) -> Tensor:
    """Mean of ``|output|^2``; real for complex outputs."""
    return (output.abs() if output.is_complex() else output).pow(2).mean()


def softplus(output: Tensor, sign: int = 1) -> Tensor:
    """Mean of ``log(1 + exp(sign * output))``."""
    return F.softplus(output if sign == 1 else -output).mean()


def element(output: Tensor, index: int) -> Tensor:
    """Element ``index`` of the first example: a view."""
    return output[0, index]


def input_contrast(output: Tensor, target: Tensor, c: float) -> Tensor:
    """Sum of ``output * (c - target)``, the target (the model's input) clamped to [0, 1]."""
    return (output * (c - target.clamp(0, 1))).sum()


def mse_between(output: Tensor, reference: Tensor) -> Tensor:
    """Of two outputs of the same shape."""
    return F.mse_loss(output, reference)


def gram_mse(output: Tensor, reference: Tensor) -> Tensor:
    """Of two outputs' Gram matrices; outputs are (batch, channels, height, width)."""
    return F.mse_loss(_gram(output), _gram(reference))


def _gram(features: Tensor) -> Tensor:
    """Products of channels of (batch, channels, height, width), averaged over places and channels."""
    channels = features.flatten(2)
    return channels @ channels.mT / channels[0].numel()


def gan_discriminator(real: Tensor, fake: Tensor) -> Tensor:
    """Logistic loss of the logits of real examples and of fakes, each averaged."""
    return softplus(real, sign=-1) + softplus(fake)


def sac_actor(log_prob: Tensor, value: Tensor, log_temperature: Tensor) -> Tensor:
    """Log-probability (batch,) at the temperature, less the critic's value (batch,), averaged."""
    return (log_temperature.detach().exp() * log_prob - value).mean()


def sac_temperature(log_prob: Tensor, log_temperature: Tensor, target_entropy: float) -> Tensor:
    """Moves the temperature until the policy's entropy is the target."""
    return -(log_temperature * (log_prob.detach() + target_entropy)).mean()
