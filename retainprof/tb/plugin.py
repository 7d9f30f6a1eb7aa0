"""The plugin that TensorBoard loads: GET routes that read runs below its log directory and never write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from retainprof.analysis.answers import answers
from retainprof.errors import RetainprofError, UsageError
from retainprof.records import StrategyResult
from retainprof.report import bundle, page_data
from retainprof.report.bundle import STATIC
from retainprof.tb import trace
from retainprof.tb.runs import Runs

__all__ = ["Plugin"]

FIRST_LOOK_SECONDS: Final = 0.3
_log = logging.getLogger(__name__)
Handler = Callable[[Mapping[str, str]], Any]


class Plugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab ``retainprof``."""

    plugin_name = "retainprof"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._runs = Runs(_roots(context))
        self._looking = threading.Thread(target=self._runs.all, daemon=True, name="retainprof-runs")
        self._looking.start()

    def is_active(self) -> bool:
        """Whether there is a run. Answers from what was found last, and looks again in another thread."""
        if self._runs.known():
            return True
        if not self._looking.is_alive():
            self._looking = threading.Thread(target=self._runs.all, daemon=True, name="retainprof-runs")
            self._looking.start()
        self._looking.join(FIRST_LOOK_SECONDS)
        return self._runs.known() > 0

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """The tab's module and name."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="retainprof")

    def get_plugin_apps(self) -> dict[str, Any]:
        """Routes below ``data/plugin/retainprof``."""
        style = (STATIC / "style.css").read_bytes()
        data = {"/runs": self._list, "/page": self._page, "/kernels": self._kernels, "/events": self._events}
        return {
            "/index.js": _file(bundle.module("index.js").encode(), "application/javascript"),
            "/style.css": _file(style, "text/css"),
            **{route: _json(handler) for route, handler in data.items()},
            "/trace": wrappers.Request.application(self._download),
        }

    def _list(self, _: Mapping[str, str]) -> Any:
        return [{"id": run.id, "problem": run.problem, "modified_ns": str(run.modified_ns)} for run in self._runs.all()]

    def _page(self, query: Mapping[str, str]) -> Any:
        result = self._runs.read(query.get("run", ""))
        return page_data.page(result, answers(result))

    def _kernels(self, query: Mapping[str, str]) -> Any:
        return page_data.kernels([call.kernel_rows for call in self._strategy(query).calls])

    def _events(self, query: Mapping[str, str]) -> Any:
        call = query.get("call", "0")
        if not call.isascii() or not call.isdecimal() or len(call) > 9:
            raise UsageError(f"{call[:40]!r} is no call's number")
        return trace.events(self._trace(query), int(call), self._strategy(query))

    def _strategy(self, query: Mapping[str, str]) -> StrategyResult:
        name = query.get("strategy", "")
        found = [s for s in self._runs.read(query.get("run", "")).strategies if s.name == name]
        if not found:
            raise UsageError(f"the run has no strategy {name[:80]!r}")
        return found[0]

    def _trace(self, query: Mapping[str, str]) -> Path:
        return trace.trace_file(self._runs.find(query.get("run", "")).folder, self._strategy(query))

    def _download(self, request: wrappers.Request) -> wrappers.Response:
        """The trace file as it is."""
        if request.method not in ("GET", "HEAD"):
            return _answer(request, {"error": "only GET"}, 405)
        try:
            path = self._trace(request.args)
            stream = path.open("rb")
        except (RetainprofError, OSError) as e:
            return _answer(request, {"error": str(e)}, 404)
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.name)}",
            "X-Content-Type-Options": "nosniff",
            "Content-Length": str(path.stat().st_size),
        }
        chunks = iter(lambda: stream.read(1 << 16), b"")
        return wrappers.Response(
            chunks, content_type="application/octet-stream", headers=headers, direct_passthrough=True
        )


def _roots(context: base_plugin.TBContext) -> list[Path]:
    """The local folders among TensorBoard's log directories."""
    spec = getattr(context.flags, "logdir_spec", "") if context.flags is not None else ""
    named = [part.split(":", 1)[-1] for part in spec.split(",")] if spec else [context.logdir or ""]
    return [Path(name).expanduser().absolute() for name in named if name and "://" not in name]


def _answer(request: wrappers.Request, value: Any, code: int = 200) -> wrappers.Response:
    response: wrappers.Response = http_util.Respond(
        request, msgspec.json.encode(value).decode(), "application/json", code=code
    )
    return response


def _json(handler: Handler) -> Any:
    """A route that answers with what ``handler`` returns, or with ``{"error": text}``."""

    @wrappers.Request.application
    def respond(request: wrappers.Request) -> wrappers.Response:
        if request.method not in ("GET", "HEAD"):
            return _answer(request, {"error": "only GET"}, 405)
        try:
            return _answer(request, handler(request.args))
        except RetainprofError as e:
            return _answer(request, {"error": f"{e}. {e.hint}" if e.hint else str(e)}, 404)
        except Exception:  # noqa: BLE001, a run folder may hold anything; TensorBoard goes on, and its log has the traceback
            _log.exception("retainprof cannot show a run")
            return _answer(request, {"error": "this run cannot be shown; TensorBoard's log says why"}, 500)

    return respond


def _file(content: bytes, kind: str) -> Any:
    """A route that answers with ``content``."""

    @wrappers.Request.application
    def respond(request: wrappers.Request) -> wrappers.Response:
        response: wrappers.Response = http_util.Respond(request, content, kind)
        return response

    return respond
