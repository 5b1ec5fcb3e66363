"""Slowness: what waits stays out, what is slow stands out, and the order in which a cause is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from mycroft.analysis.attribution import culprits, slowness, standing
from mycroft.analysis.config import FLOW_DEFAULTS
from mycroft.analysis.cusum import watch
from mycroft.analysis.facts import Frames
from mycroft.analysis.own_service import OPS, Metric, OwnService, own_service
from mycroft.analysis.slow_findings import slow_findings
from tests.analysis.simulated_jobs import job

LIMITS = FLOW_DEFAULTS
ROWS = 60


def service(fault: str, **settings: object) -> OwnService:
    found = own_service(job(fault, **settings).store, LIMITS)
    assert found is not None
    return found


def metric(columns: np.ndarray) -> Metric:
    return Metric("G", (np.arange(columns.shape[1]),), columns, np.ones_like(columns))


def noise(entities: int = 8) -> np.ndarray:
    return np.random.default_rng(7).normal(0, 0.01, (ROWS, entities))


def test_iterations_are_found_from_the_sequence_of_operations() -> None:
    found = service("none")
    broken = job("none")

    assert found.iterations.by_sequence
    seconds = np.diff(found.ends) / 1e9
    counted = len(broken.simulated.iteration_ns)
    assert abs(len(found.ends) - counted) <= 2
    assert float(np.median(seconds)) == pytest.approx(float(np.median(broken.simulated.iteration_ns)) / 1e9, rel=0.1)


def test_ranks_that_wait_for_a_slow_gpu_are_not_slow() -> None:
    found = service("gpu_power")
    gpu = slowness(found, LIMITS).watches["G"]
    column = gpu.metric.entities.index((9,))

    effect = gpu.effect(len(found.ends) - 8, len(found.ends) - 1)

    assert np.exp(effect[column]) == pytest.approx(1.7, abs=0.1)
    assert np.all(np.abs(np.delete(effect, column)) < np.log(LIMITS.eff_gpu))


def test_ring_neighbours_of_a_slow_device_share_only_some_of_its_slowness() -> None:
    found = slowness(service("nic_bw"), LIMITS)
    (one,) = culprits(found, found.last())

    assert (one.component, one.ranks) == ("nic", (9,))


@pytest.mark.parametrize(
    ("fault", "component", "ranks", "on_host"),
    [
        ("gpu_power", "gpu", (9,), False),
        ("slow_gpu20", "gpu", (9,), False),
        ("nic_bw", "nic", (9,), False),
        ("pcie", "pcie", (9,), False),
        ("qp_slow30", "qp", (9,), False),
        ("bg_compute", "host_gpu", (), True),
        ("bg_traffic", "host_nic", (), True),
    ],
)
def test_slow_component_is_named_after_the_fault_and_never_before(
    fault: str, component: str, ranks: tuple[int, ...], on_host: bool
) -> None:
    broken = job(fault)
    found = slowness(service(fault), LIMITS)
    rows = [r for r in range(len(found.service.ends)) if culprits(found, r)]
    first = culprits(found, rows[0])[0]

    assert found.service.ends[rows[0]] > broken.start_ns
    assert (first.component, first.ranks) == (component, ranks)
    assert (first.host is not None) == on_host


def test_since_when_is_within_two_iterations_of_the_fault() -> None:
    broken = job("gpu_power")
    found = slowness(service("gpu_power"), LIMITS)
    (one,) = culprits(found, found.last())

    began = found.service.ends[one.begun - 1]

    assert abs(int(began) - broken.start_ns) < 2 * np.median(np.diff(found.service.ends))


def test_finding_says_what_it_costs_and_what_that_supposes() -> None:
    (finding,) = slow_findings(job("nic_bw").store)

    assert finding.cost is not None
    assert 0 < finding.cost.share < 1
    assert finding.cost.gpu_hours_per_day == pytest.approx(finding.cost.share * 16 * 24, rel=0.01)
    assert "24 hours" in finding.cost.assumption
    assert finding.certainty is not None and finding.certainty > 0.8


def test_healthy_job_with_pauses_and_bursts_has_no_culprit() -> None:
    found = slowness(service("none"), LIMITS)
    assert [r for r in range(len(found.service.ends)) if culprits(found, r)] == []
    assert standing(found) == ()


def test_one_long_pause_raises_no_alarm() -> None:
    rows = noise()
    rows[40, 3] = 3.0
    assert not watch(metric(rows), LIMITS, least_effect=1.05).alarm.any()


def test_step_raises_an_alarm_of_that_entity_alone_and_knows_its_start() -> None:
    rows = noise()
    rows[40:, 3] += 0.2
    found = watch(metric(rows), LIMITS, least_effect=1.05)

    assert set(np.nonzero(found.alarm.any(axis=0))[0]) == {3}
    assert abs(int(found.begun[-1, 3]) - 40) <= 1


def test_effect_below_the_practical_limit_is_no_alarm_however_sure() -> None:
    rows = noise()
    rows[40:, 3] += 0.03
    found = watch(metric(rows), LIMITS, least_effect=1.05)

    assert found.score[-1, 3] > found.limit
    assert not found.alarm.any()


def test_the_luckiest_of_many_while_learning_has_not_become_slower_by_being_as_slow_as_all() -> None:
    rows = np.random.default_rng(7).normal(0, 0.05, (2 * ROWS, 64))
    learnt = slice(LIMITS.warm, LIMITS.warm + LIMITS.learn)
    rows[learnt, 3] -= np.median(rows[learnt, 3]) + 0.07
    slower = rows.copy()
    slower[ROWS:, 5] += 0.25
    lucky = watch(metric(rows), LIMITS, least_effect=1.10, of_host=True)
    blamed = watch(metric(slower), LIMITS, least_effect=1.10, of_host=True)
    over_ten = np.convolve(lucky.deviation[:, 3], np.full(10, 0.1), "valid")

    assert lucky.score[-1, 3] > lucky.limit
    assert over_ten[learnt.stop :].max() > np.log(1.10)
    assert not lucky.alarm.any()
    assert set(np.nonzero(blamed.alarm.any(axis=0))[0]) == {5}


def test_baseline_does_not_learn_the_fault() -> None:
    rows = np.vstack([noise(), noise(), noise()])
    rows[40:, 3] += 0.2
    assert watch(metric(rows), LIMITS, least_effect=1.05).alarm[-1, 3]


def test_entity_that_was_always_slow_is_a_standing_imbalance_and_no_alarm() -> None:
    found = slowness(service("none"), LIMITS)
    gpu = found.service.metrics["G"].log_ratio.copy()
    gpu[:, 2] += 0.2
    changed = OwnService(
        found.service.iterations,
        found.service.starts,
        found.service.ends,
        {"G": Metric("G", found.service.metrics["G"].ids, gpu, found.service.metrics["G"].cost_s)},
        found.service.hosts,
        found.service.neighbours,
    )

    always = slowness(changed, LIMITS)

    assert culprits(always, always.last()) == ()
    assert [(s.rank, round(s.ratio, 1)) for s in standing(always)] == [(2, 1.2)]


def test_entity_that_was_not_seen_while_learning_is_never_alarmed() -> None:
    rows = noise()
    rows[: LIMITS.warm + LIMITS.learn, 3] = np.nan
    rows[40:, 3] += 0.5
    assert not watch(metric(rows), LIMITS, least_effect=1.05).alarm.any()


@pytest.mark.parametrize(
    ("scatter", "named"), [(0.01, [("nic", (4,))]), (0.8, [("path", (0, 4))])], ids=["quiet", "noisy"]
)
def test_end_of_a_slow_flow_is_named_only_where_the_rest_of_it_is_slow_beyond_its_scatter(
    scatter: float, named: list[tuple[str, tuple[int, ...]]]
) -> None:
    # Ranks 0 and 4 are a ring of two and slow in it; what 4 sends through the pipeline has grown by half as well.
    draw = np.random.default_rng(3)
    ring = draw.normal(0, 0.05, (ROWS, 8))
    ring[40:, [0, 4]] += 0.8
    pipeline = draw.normal(0, scatter, (ROWS, 8))
    pipeline[40:, 4] = 0.4 + draw.normal(0, min(scatter, 0.05), ROWS - 40)
    usual = service("none")
    ends = np.arange(1, ROWS + 1, dtype=np.int64) * 1_000_000_000
    cost = np.full((ROWS, 8), 0.2)
    one, both = (np.arange(8),), (np.arange(8), np.zeros(8, dtype=np.int64))
    metrics = {
        "S": Metric("S", both, ring, cost),
        "Rv": Metric("Rv", one, ring, cost),
        "PS": Metric("PS", both, pipeline, cost),
        "PR": Metric("PR", one, pipeline, cost),
    }
    peers = {r: frozenset({(r + 4) % 8}) for r in range(8)}
    found = slowness(OwnService(usual.iterations, ends - 10**9, ends, metrics, {}, lambda: peers), LIMITS)

    assert [(c.component, c.ranks) for c in culprits(found, ROWS - 1)] == named


def of_metrics(metrics: dict[str, Metric], hosts: dict[int, int]) -> OwnService:
    """Metrics over iterations of one second, of ranks whose ring neighbours are all others."""
    ends = np.arange(1, ROWS + 1, dtype=np.int64) * 1_000_000_000
    peers = {r: frozenset(range(8)) - {r} for r in range(8)}
    return OwnService(service("none").iterations, ends - 10**9, ends, metrics, hosts, lambda: peers)


def flow_metric(name: str, slow: Sequence[int], by: float, cost_s: float) -> Metric:
    """A metric of flows of eight ranks of which some take longer from iteration 40 on."""
    rows, cost = noise(), np.zeros((ROWS, 8))
    rows[40:, list(slow)] += by
    cost[40:, list(slow)] = cost_s
    ids = (np.arange(8), np.zeros(8, dtype=np.int64)) if name in ("S", "PS") else (np.arange(8),)
    return Metric(name, ids, rows, cost)


def test_bus_is_named_though_the_network_before_it_keeps_up() -> None:
    # What waits behind the bus shows in the sends of another rank, by a fiftieth of what the bus costs.
    metrics = {"FL": flow_metric("FL", [7], 5.0, 0.2), "PS": flow_metric("PS", [1], 0.8, 0.006)}
    found = slowness(of_metrics(metrics, {}), LIMITS)

    assert [(c.component, c.ranks) for c in culprits(found, ROWS - 1)] == [("pcie", (7,))]
    assert culprits(found, 39) == ()


def test_devices_of_a_host_of_two_ranks_that_slow_down_together_are_its_traffic() -> None:
    hosts = {r: r // 2 for r in range(8)}
    metrics = {"S": flow_metric("S", [2, 3], 0.5, 0.1), "Rv": flow_metric("Rv", [2, 3], 0.5, 0.1)}
    found = slowness(of_metrics(metrics, hosts), LIMITS)

    assert [(c.component, c.host) for c in culprits(found, ROWS - 1)] == [("host_nic", 1)]


def test_work_that_comes_and_goes_within_seconds_is_not_slowness() -> None:
    metrics = {"FL": flow_metric("FL", [7], 5.0, 0.2)}
    slow = slowness(of_metrics(metrics, {}), LIMITS)
    # The same iterations, each of a quarter of a second.
    ends = slow.service.ends // 4
    quick = slowness(replace(slow.service, starts=ends - 250_000_000, ends=ends), LIMITS)

    assert culprits(slow, 50) != ()
    assert culprits(quick, 50) == ()
    assert [(c.component, c.ranks) for c in culprits(quick, ROWS - 1)] == [("pcie", (7,))]


def test_slow_flow_is_told_beside_a_device_whose_slowness_costs_nothing() -> None:
    metrics = {
        "S": flow_metric("S", [0, 2], 1.5, 0.07),
        "Rv": flow_metric("Rv", [5], 1.5, 0.0001),
        "PS": flow_metric("PS", [5], 1.5, 0.0001),
        "PR": flow_metric("PR", [5], 1.5, 0.0001),
    }
    metrics["S"].log_ratio[40:, 5] += 1.5
    found = slowness(of_metrics(metrics, {}), LIMITS)

    assert {r for c in culprits(found, ROWS - 1) for r in c.ranks} >= {0, 2}


def test_one_operation_that_takes_very_long_does_not_make_all_others_small() -> None:
    class OneWaits:
        """The store of a job in which one operation of one group waited for half a minute on every rank."""

        def __init__(self, store: Frames) -> None:
            self.store = store

        def frame(self, sql: str, params: Sequence[object] | dict[str, object] = ()) -> pl.DataFrame:
            found = self.store.frame(sql, params)
            if sql != OPS:
                return found
            tensor = found.filter(~pl.col("p2p"))["comm"].mode()[0]
            seq = found.filter(pl.col("comm") == tensor)["seq"].median()
            waits = (pl.col("comm") == tensor) & (pl.col("seq") == int(seq))  # pyright: ignore[reportArgumentType]
            late = pl.col("kstart") + pl.when(waits).then(30_000_000_000).otherwise(0)
            return found.with_columns(late.alias("kstart"))

    store = job("gpu_power").store
    usual, one = own_service(store, LIMITS), own_service(OneWaits(store), LIMITS)

    assert usual is not None and one is not None
    seen = [float(np.isnan(s.metrics["G"].log_ratio).mean()) for s in (usual, one)]
    assert seen[1] <= seen[0] + 0.01
