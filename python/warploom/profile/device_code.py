"""The device functions that record spans, as expressions for programs.

A recording thread keeps one number: the byte offset of its next record. It is past the end of the
memory for a thread that does not record, or no longer, so that one comparison guards a record.
The clock is that of the SM (``%clock``), which is read in a few cycles; only the begin and the end
of a stream read ``%globaltimer``, which all SMs share. Records are stored without waiting for them.

Sources: PTX ISA, "Special Registers" (``%clock``, ``%globaltimer``, ``%smid``).
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer

from warploom.profile.recording import DURATION_BITS, HEADER_ROWS, WORD_BYTES, Recording
from warploom.transform import ir

#: The offset of a thread that records nothing.
_NOWHERE = 0xFFFFFFFF

_HEAD = "__forceinline__ __device__ unsigned int "

_CLOCK = f"""{_HEAD}warploom_clock() {{
  unsigned int now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now) : : "memory");
  return now;
}}"""

_OPEN = f"""{_HEAD}warploom_open_stream(
    void* records, unsigned int number, unsigned int chosen, unsigned int per_cta,
    unsigned int ctas) {{
  unsigned int grid = gridDim.x * gridDim.y * gridDim.z;
  unsigned int cta = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  unsigned int step = grid > ctas ? grid / ctas : 1;
  if (!chosen || cta % step || cta / step >= ctas) return {_NOWHERE}u;
  unsigned int streams = ctas * per_cta;
  unsigned int stream = cta / step * per_cta + number;
  unsigned long long* row = (unsigned long long*)records + stream;
  unsigned long long nanoseconds;
  unsigned int clock;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds) : : "memory");
  asm volatile("mov.u32 %0, %%clock;" : "=r"(clock) : : "memory");
  row[0] = nanoseconds;
  row[streams] = (unsigned long long)(cta + 1) << 32 | clock;
  return ({HEADER_ROWS} * streams + stream) * {WORD_BYTES};
}}"""

_RECORD = f"""
      "setp.lt.u32 room, %0, %4;\\n"
      "sub.u32 took, took, %2;\\n"
      "min.u32 took, took, {(1 << DURATION_BITS) - 1};\\n"
      "add.u32 took, took, %3;\\n"
      "cvt.u64.u32 place, %0;\\n"
      "add.u64 place, place, %1;\\n"
      "@room st.global.v2.b32 [place], {{%2, took}};\\n"
      "@room add.u32 %0, %0, %5; }}"
      : "+r"(next)
      : "l"(__cvta_generic_to_global(records)), "r"(begin), "r"(tag), "r"(end), "r"(pitch)"""

_SPAN = f"""{_HEAD}warploom_end_span(
    void* records, unsigned int next, unsigned int begin, unsigned int tag, unsigned int end,
    unsigned int pitch) {{
  asm volatile(
      "{{ .reg .pred room; .reg .b32 took; .reg .b64 place;\\n"
      "mov.u32 took, %%clock;\\n"{_RECORD}
      : "memory");
  return next;
}}"""

#: A number that no result is: with it, a span would have taken no time.
_NO_RESULT = 0x7FC5A5A5

_SPAN_OF_RESULT = f"""{_HEAD}warploom_end_span_of_result(
    void* records, unsigned int next, unsigned int begin, unsigned int tag, unsigned int end,
    unsigned int pitch, unsigned int result) {{
  asm volatile(
      "{{ .reg .pred room; .reg .b32 took; .reg .b64 place;\\n"
      "setp.ne.u32 room, %6, {_NO_RESULT};\\n"
      "mov.u32 took, %2;\\n"
      "@room mov.u32 took, %%clock;\\n"{_RECORD}, "r"(result)
      : "memory");
  return next;
}}"""

_CLOSE = f"""__forceinline__ __device__ void warploom_close_stream(
    void* records, unsigned int next, unsigned int streams) {{
  if (next == {_NOWHERE}u) return;
  unsigned int word = next / {WORD_BYTES};
  unsigned long long* row = (unsigned long long*)records + word % streams;
  unsigned long long nanoseconds;
  unsigned int clock, sm;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds) : : "memory");
  asm volatile("mov.u32 %0, %%clock;" : "=r"(clock) : : "memory");
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  row[2 * streams] = nanoseconds;
  row[3 * streams] =
      (unsigned long long)(sm << 16 | (word / streams - {HEADER_ROWS})) << 32 | clock;
}}"""


def _call(name: str, source: str, *values: Any, returns: bool = True) -> Any:
    kind = {"return_type": "uint32"} if returns else {}
    return T.cuda.func_call(name, *values, source_code=source, **kind)


class Recorder:
    """Expressions that record into one buffer.

    Parameters
    ----------
    records : Buffer
        ``uint64[rows, streams]`` in global memory.
    recording : Recording
    per_cta : int
        Streams of a CTA.
    """

    def __init__(self, records: Buffer, recording: Recording, per_cta: int) -> None:
        self.recording, self.per_cta = recording, per_cta
        self._place = ir.address(records, 0, 0)
        self._streams = recording.ctas * per_cta

    def open(self, number: Any, chosen: Any) -> Any:
        """Where the stream of that number of this CTA begins, if the thread is chosen for it."""
        values = [T.Cast("uint32", ir.as_expr(one)) for one in (number, chosen)]
        sizes = (T.uint32(self.per_cta), T.uint32(self.recording.ctas))
        return _call("warploom_open_stream", _OPEN, self._place, *values, *sizes)

    def clock(self) -> Any:
        """The begin of a span."""
        return _call("warploom_clock", _CLOCK)

    def end(self, following: Any, begin: Any, tag: int, result: Any = None) -> Any:
        """Record a span that ends here, at ``following``; where the next one goes.

        ``result`` is a register of 32 bits that the span computes. ptxas moves waits for products
        past the reading of a clock, unless the reading depends on what is waited for.
        """
        pitch = self._streams * WORD_BYTES
        size = self.recording.rows * pitch
        constants = [T.uint32(one) for one in (tag << DURATION_BITS, size, pitch)]
        values = (self._place, following, begin, *constants)
        if result is None:
            return _call("warploom_end_span", _SPAN, *values)
        bits = T.reinterpret("uint32", result)
        return _call("warploom_end_span_of_result", _SPAN_OF_RESULT, *values, bits)

    def close(self, following: Any) -> Any:
        """End a stream."""
        values = (self._place, following, T.uint32(self._streams))
        return _call("warploom_close_stream", _CLOSE, *values, returns=False)
