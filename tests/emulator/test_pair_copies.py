"""Where a bulk copy to shared memory may be counted: in the CTA that it goes to."""

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, kernel, launch

DECLARATIONS = """.shared .align 16 .b8 buffer[16];
.shared .align 8 .b64 barrier;"""

# CTA 0 copies 16 bytes to itself and counts them on the mbarrier of the CTA of rank {rank}.
COPY = """
mov.u32 %r1, %cluster_ctarank;
mov.u32 %r2, buffer;
mov.u32 %r3, barrier;
mapa.shared::cluster.u32 %r4, %r3, {rank};
mbarrier.init.shared::cta.b64 [%r3], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 16;
fence.mbarrier_init.release.cluster;
barrier.cluster.arrive;
barrier.cluster.wait;
setp.ne.u32 %q0, %r1, 0;
@%q0 bra ISSUED;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%p0], 16, [%r4];
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r3], 0;
@!%q1 bra WAIT;
ld.shared.u32 %r5, [%r2+12];
st.global.u32 [%p1], %r5;
ISSUED:
"""


def run(rank, words):
    body = COPY.format(rank=rank)
    return launch(
        kernel(2, body, DECLARATIONS),
        [words, np.zeros(1, "uint32")],
        grid=(2, 1, 1),
        block=(1, 1, 1),
        cluster=(2, 1, 1),
    )[1]


def test_a_copy_is_counted_where_it_goes(rng):
    words = rng.integers(0, 1 << 32, 4, "uint32")
    assert run(0, words)[0] == words[3]


def test_a_copy_is_not_counted_elsewhere(rng):
    words = rng.integers(0, 1 << 32, 4, "uint32")
    message = "destination is in the CTA of rank 0 and the mbarrier in that of rank 1"
    with pytest.raises(EmulatorError, match=f"{message}; they must be in the same CTA, or in a"):
        run(1, words)
