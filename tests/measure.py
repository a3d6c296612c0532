"""What each test costs: `pytest -p measure --costs FILE` writes it as JSON, which `benchmarks/testing.py` reads.

CPU-seconds are those of the worker and of the processes that the test waited for. A fixture is paid for by the test
that asks for it first.
"""

import json
import os
import resource
import time
from pathlib import Path

import jax
import pytest

_SPENT = {"programs": 0, "compiling": 0.0, "tracing": 0.0}


def pytest_addoption(parser):
    parser.addoption("--costs", metavar="FILE", help="write CPU-seconds, programs and memory of every test to FILE")


def pytest_configure(config):
    config.pluginmanager.register(_Costs(config.getoption("--costs")), "costs")
    jax.monitoring.register_event_duration_secs_listener(_listen)


def _listen(event, seconds, **_):
    if event.endswith("backend_compile_duration"):
        _SPENT["programs"] += 1
        _SPENT["compiling"] += seconds
    elif event.endswith(("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration")):
        _SPENT["tracing"] += seconds


class _Costs:
    def __init__(self, path):
        self.path, self.rows, self.begun = path, {}, time.time()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        before, cpu, wall = dict(_SPENT), _cpu(), time.time()
        item.user_properties.append(("costs", costs := {}))
        item.costs = lambda: costs.update(
            {name: spent - before[name] for name, spent in _SPENT.items()},
            cpu=_cpu() - cpu,
            seconds=time.time() - wall,
            memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        )
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        if call.when == "teardown":
            item.costs()
        return (yield)

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            self.rows[report.nodeid] = {
                **dict(report.user_properties)["costs"],
                "worker": getattr(report, "worker_id", ""),
            }

    def pytest_sessionfinish(self):
        if self.path and "PYTEST_XDIST_WORKER" not in os.environ:
            found = {"seconds": time.time() - self.begun, "tests": self.rows}
            Path(self.path).write_text(json.dumps(found, indent=1))


def _cpu():
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)
