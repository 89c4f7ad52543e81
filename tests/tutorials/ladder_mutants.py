"""Synchronisation bugs planted in the sources of the ladder's steps, and what is reported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A step with a bug.

    Attributes
    ----------
    step : str
        Folder and file of the step, without ``.py``.
    name : str
        What the author did wrong.
    old, new : str
        What is replaced in the source, where it occurs first after ``after``.
    words : tuple of str
        Parts of the report.
    after : str
        Where in the source the search begins.
    """

    step: str
    name: str
    old: str
    new: str
    words: tuple[str, ...]
    after: str = ""

    def __str__(self) -> str:
        return f"{self.step.rpartition('/')[2]}: {self.name}"

    def apply(self, source: str) -> str:
        """The source with the bug; an assertion fails if there is no place for it."""
        begin = source.index(self.after)
        assert self.old in source[begin:], f"{self.old!r} is not in {self.step}"
        return source[:begin] + source[begin:].replace(self.old, self.new, 1)


FENCE = "T.ptx.fence.proxy.async_.shared__cta()"
SYNC = "T.cuda.cta_sync()"


def _hopper(step: str, name: str, old: str, new: str, *words: str, after: str = "") -> Mutant:
    return Mutant(f"ladder_hopper/{step}", name, old, new, words, after)


HOPPER = (
    _hopper("v01_one_tile", "no fence between the stores of the tiles and the products",
            FENCE, "pass", "missing proxy fence", "wgmma", "st.shared"),
    _hopper("v01_one_tile", "the products do not wait for the tiles", SYNC, "pass",
            "data race", "wgmma", "st.shared"),
    _hopper("v01_one_tile", "the products are not waited for", "accum=False, wait=True",
            "accum=False", "wgmma register race"),
    _hopper("v02_k_loop", "no fence between the stores of the tiles and the products",
            FENCE, "pass", "missing proxy fence", "wgmma", "st.shared"),
    _hopper("v03_many_ctas", "the products do not wait for the tiles", SYNC, "pass",
            "data race", "wgmma", "st.shared"),
    _hopper("v04_tma", "the tiles are not waited for", "full.wait(0, kt % 2)", "pass",
            "wgmma", "reads shared"),
    _hopper("v04_tma", "the parity is always that of the first round", "full.wait(0, kt % 2)",
            "full.wait(0, 0)", "data race", "cp.async.bulk", "wgmma"),
    _hopper("v04_tma", "too many bytes are announced", "full.arrive(0, TILE_BYTES)",
            "full.arrive(0, TILE_BYTES + 16)", "deadlock", "0 of 1 arrivals and 16 bytes pending"),
    _hopper("v04_tma", "no fence before the store", FENCE, "pass",
            "missing proxy fence", "stmatrix", after="Tx.wg.cast"),
    _hopper("v04_tma", "the store is not waited for", "T.ptx.cp.async_.bulk.wait_group(0)", "pass",
            "early exit", "cp.async.bulk"),
    _hopper("v05_two_stages", "the ring never turns", "ring.advance()", "pass",
            "deadlock", "full.wait(ring.stage, ring.phase)"),
    _hopper("v05_two_stages", "tiles are requested before the stage has been read", "wait=True",
            "wait=False", "wgmma"),
    _hopper("v06_persistent", "the ring begins every tile anew",
            "            for kt in T.serial(k_tiles):",
            "            ring.init(0)\n            for kt in T.serial(k_tiles):",
            "deadlock", "full.init(1)"),
    _hopper("v06_persistent", "the staging of the last tile is overwritten",
            "T.ptx.cp.async_.bulk.wait_group.read(0)", "pass",
            "data race", "stmatrix", "cp.async.bulk"),
    _hopper("v07_warp_specialised", "the producer does not wait for empty stages",
            "empty.wait(ring.stage, ring.phase)", "pass",
            "mbarrier.arrive", "0 of 1 arrivals are pending"),
    _hopper("v07_warp_specialised", "the producer begins with parity 0",
            "PipelineState(STAGES, 1)", "PipelineState(STAGES, 0)",
            "deadlock", "empty.wait(ring.stage, ring.phase)"),
    _hopper("v07_warp_specialised", "no stage is given back", "empty.arrive(ring.stage)", "pass",
            "deadlock", "empty.wait(ring.stage, ring.phase)", "1 of 1 arrivals"),
    _hopper("v08_four_stages", "a stage is given back while its products run",
            "wait_group.sync.aligned(1)", "wait_group.sync.aligned(2)",
            "data race", "wgmma", "cp.async.bulk"),
    _hopper("v09_cluster", "stages are given back to the own CTA only",
            "empty.remote_view(lane % CLUSTER)", "empty", "data race", "multicast::cluster"),
    _hopper("v09_cluster", "an empty barrier expects one CTA", "empty.init(CLUSTER)",
            "empty.init(1)", "data race", "multicast::cluster"),
    _hopper("v09_cluster", "a CTA leaves before the other", "T.cuda.cluster_sync()", "pass",
            "early exit", after="wait_group(0)\n        #"),
    _hopper("v10_two_consumers", "an empty barrier expects one consumer",
            "empty.init(CONSUMERS * CLUSTER)", "empty.init(CLUSTER)",
            "data race", "multicast::cluster"),
    _hopper("v10_two_consumers", "the staging is stored before all warps have written it",
            "T.cuda.warpgroup_sync(wg)", "pass",
            "uninitialised read", "cp.async.bulk", "reads shared", after="ldstmatrix"),
    _hopper("v10_two_consumers", "one store too many may read the staging",
            "wait_group.read(BUFFERS - 1)", "wait_group.read(BUFFERS)",
            "data race", "stmatrix", "cp.async.bulk"),
)  # fmt: skip


def _blackwell(step: str, name: str, old: str, new: str, *words: str, after: str = "") -> Mutant:
    return Mutant(f"ladder_blackwell/{step}", name, old, new, words, after)


BLACKWELL = (
    _blackwell("v01_one_tile", "no fence between the stores of the tiles and the products",
               FENCE, "pass", "missing proxy fence", "tcgen05.mma", "st.shared"),
    _blackwell("v01_one_tile", "the products are not waited for", "done.wait(0, 0)", "pass",
               "tcgen05.ld"),
    _blackwell("v01_one_tile", "no fence between the barrier and the loads of the sums",
               "T.ptx.tcgen05.fence__after_thread_sync()", "pass", "tcgen05.ld", "fence"),
    _blackwell("v01_one_tile", "columns are given back while warps load from them",
               SYNC, "pass", "tcgen05.dealloc", after="Tx.wg.copy(C"),
    _blackwell("v02_k_loop", "tiles are overwritten before they have been read",
               "done.wait(0, kt % 2)", "pass", "st.shared", "tcgen05.mma"),
    _blackwell("v03_many_ctas", "the products do not wait for the tiles", SYNC, "pass",
               "uninitialised read", "tcgen05.mma", after="Tx.cta.copy(B_s"),
    _blackwell("v04_tma", "the tiles are not waited for", "full.wait(0, kt % 2)", "pass",
               "tcgen05.mma", "cp.async.bulk"),
    _blackwell("v04_tma", "the other threads wait for a parity", SYNC,
               "done.wait(0, (k // BK - 1) % 2)", "tcgen05", after="done.wait"),
    _blackwell("v05_two_stages", "tiles are requested before the stage has been read",
               "done.wait(0, kt % 2)", "pass", "tcgen05.mma", "cp.async.bulk"),
    _blackwell("v06_persistent", "the staging is stored before all warps have written it",
               SYNC, "pass", "uninitialised read", "cp.async.bulk",
               after="fence__before_thread_sync"),
    _blackwell("v06_persistent", "the staging of the last tile is overwritten",
               "T.ptx.cp.async_.bulk.wait_group.read(0)", "pass", "st.shared", "cp.async.bulk"),
    _blackwell("v07_warp_specialised", "one thread of the epilogue speaks for all",
               "drained.init(128)", "drained.init(1)", "phase lapped", "drained.wait"),
    _blackwell("v07_warp_specialised", "no stage is given back", "empty.arrive(ring.stage)",
               "pass", "deadlock", "empty.wait(ring.stage, ring.phase)"),
    _blackwell("v07_warp_specialised", "the accumulators are not waited for",
               "drained.wait(0, slot.phase)", "pass", "tcgen05.ld"),
    _blackwell("v08_four_stages", "both slots have the same columns",
               "first = T.meta_var(slot.stage * BN)", "first = T.meta_var(0)", "tcgen05"),
    _blackwell("v08_four_stages", "a tile is done before its last products",
               "done.arrive(slot.stage)", "pass", "deadlock", "done.wait"),
    _blackwell("v09_cluster", "stages are given back to the first CTA only",
               "empty.arrive(ring.stage, PAIR, BOTH)", "empty.arrive(ring.stage, PAIR)",
               "deadlock", "empty.wait"),
    _blackwell("v09_cluster", "the bytes of one CTA are announced", "PAIR * TILE_BYTES",
               "TILE_BYTES", "tcgen05.mma"),
    _blackwell("v09_cluster", "one epilogue speaks for both", "drained.init(PAIR * 128)",
               "drained.init(128)", "tcgen05.ld"),
    _blackwell("v10_two_consumers", "an empty barrier expects one consumer",
               "empty.init(CONSUMERS)", "empty.init(1)", "tcgen05.mma"),
    _blackwell("v10_two_consumers", "both epilogues meet at one named barrier",
               "T.cuda.warpgroup_sync(wg)", "T.cuda.warpgroup_sync(1)",
               "data race", "st.shared", "cp.async.bulk"),
)  # fmt: skip

MUTANTS = (*HOPPER, *BLACKWELL)
