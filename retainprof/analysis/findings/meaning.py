"""Rules on the gradients themselves, and on what cannot be told."""

from __future__ import annotations

from collections.abc import Iterator

from retainprof.analysis.compare import clock_of, deciding
from retainprof.analysis.findings.base import Rule, names_of, register
from retainprof.analysis.stats import relative_width
from retainprof.records import Finding, Ratio, Result, StrategyResult
from retainprof.units import ratio, show_count

__all__ = ["GradientsDiffer", "GradientsNotFinite", "GradientsRound", "NoiseTooLarge"]

ACCURACY = "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html"


@register
class GradientsRound(Rule):
    """Gradients that are close to the reference, not bitwise equal."""

    name = "gradients_differ_by_rounding"
    looks_for = "gradients that differ from the summed backward's by rounding only"
    url = ACCURACY

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        found = strategy.gradients
        if found is None or found.relation != "close" or found.max_rel_difference is None:
            return
        where = f", in {found.worst_parameter}" if found.worst_parameter else ""
        yield self.finding(
            strategy,
            None,
            f"gradients differ from {found.reference}'s by at most {found.max_rel_difference:.1e} of a tensor's largest "
            f"value{where}: the terms are added in another order",
            "nothing to change; compare with a tolerance, not for equality",
            evidence={"max_rel_difference": found.max_rel_difference, "parameter": found.worst_parameter},
        )


@register
class GradientsDiffer(Rule):
    """Gradients that mean something else than the reference's."""

    name = "gradients_differ_in_meaning"
    looks_for = "gradients that are not the summed backward's: different, or not comparable and why"
    url = "https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        found = strategy.gradients
        if found is None:
            return
        returned = found.relation == "not_comparable" and found.returned_relation is not None
        different = found.returned_relation == "different" if returned else found.relation == "different"
        if different:
            by = found.returned_max_rel_difference if returned else found.max_rel_difference
            amount = "" if by is None else f" by up to {by:.1e} of a tensor's largest value"
            where = f", in {found.worst_parameter}" if found.worst_parameter else ""
            yield self.finding(
                strategy,
                None,
                f"gradients differ from {found.reference}'s{amount}{where}: this is another training step",
                "do not swap this strategy for another on its time alone; look at detaches, clears and buffers first",
                evidence={"max_rel_difference": by, "parameter": found.worst_parameter, "reason": found.reason},
                severity="warning",
            )
        elif found.relation == "not_comparable" and not returned and found.reason:
            yield self.finding(
                strategy,
                None,
                f"gradients are not those of {found.reference}, and are not meant to be: {found.reason}",
                "compare its time with strategies that leave the same gradients only",
                evidence={"reason": found.reason},
            )


@register
class GradientsNotFinite(Rule):
    """NaN or infinite gradients."""

    name = "gradients_not_finite"
    looks_for = "gradients with a NaN or an infinity"
    url = "https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection"
    severity = "warning"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:  # noqa: ARG002
        names = () if strategy.gradients is None else strategy.gradients.not_finite
        if not names:
            return
        more = "" if len(names) <= 3 else f" and {show_count(len(names) - 3)} more"
        yield self.finding(
            strategy,
            None,
            f"gradients of {', '.join(names[:3])}{more} have a NaN or an infinity; times are valid, values are not",
            "with torch.autograd.detect_anomaly(): ... names the operator that makes the first NaN",
            evidence={"parameters": list(names)},
        )


@register
class NoiseTooLarge(Rule):
    """Intervals too wide for a verdict."""

    name = "noise_too_large"
    looks_for = "intervals too wide to tell slower, faster or same"
    url = "https://docs.pytorch.org/docs/stable/benchmark_utils.html"

    def find(self, strategy: StrategyResult, result: Result) -> Iterator[Finding]:
        clock = clock_of(result)
        for found in result.comparisons:
            if found.contender == strategy.name and found.verdict == "cannot_tell":
                whole = deciding(found.cpu, found.wall, clock)
                yield from self._wide(strategy, None, f"a step against {found.baseline}", whole, result)
        unclear = [
            (used, later.call)
            for later in strategy.first_vs_later
            if later.verdict == "cannot_tell"
            and (used := deciding(later.ratio_cpu, later.ratio_wall, clock)) is not None
        ]
        if unclear:
            used, call = max(unclear, key=lambda found: relative_width(found[0]))
            more = f" (and {show_count(len(unclear) - 1)} other calls)" if len(unclear) > 1 else ""
            what = f"call {call} ({names_of(strategy.calls[call])}){more} against call 0"
            yield from self._wide(strategy, call, what, used, result)

    def _wide(
        self, strategy: StrategyResult, call: int | None, what: str, found: Ratio | None, result: Result
    ) -> Iterator[Finding]:
        if found is None:
            return
        ended = "" if result.timing is None else f", ended by {result.timing.stopped_by}"
        yield self.finding(
            strategy,
            call,
            f"cannot tell {what}: the ratio lies between {ratio(found.ci95[0])} and {ratio(found.ci95[1])} after "
            f"{show_count(found.pairs)} rounds{ended}",
            "raise --budget, close what else runs, or use --threads 1",
            evidence={"ratio": found.median, "ci95": list(found.ci95), "rounds": found.pairs},
        )
