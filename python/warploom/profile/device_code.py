"""The device functions that record spans, as expressions for programs.

A recording thread keeps one number: the byte offset of its next record. It is past the end of the
memory for a thread that does not record, or no longer, so that one comparison guards a record.
The clock is that of the SM (``%clock``), which is read in a few cycles; only the begin and the end
of a stream read ``%globaltimer``, which all SMs share. Records are stored without waiting for them.

The cost of recording is the stalls of the instructions that it adds between one MMA and the
next: stored one by one, the five spans of a step of attention cost 118 clocks, 127 if causal (H200,
2026-11-22), and what ptxas had to add for them stalls for 90 and 120. Hence a clock is a register
and nothing is computed from it here, and the stores of a group share their address and their guard.
ptxas moves nothing up past the reading of a clock, such as the condition of the next branch; that
is most of what is left, and the reason to read one clock for two spans that touch.

Sources: PTX ISA, "Special Registers" (``%clock``, ``%globaltimer``, ``%smid``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer

from warploom.profile.recording import HEADER_ROWS, ROW_BITS, WORD_BYTES, Recording
from warploom.tile import ir

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

#: A number that no result is: with it, the clock would be another one.
_NO_RESULT = 0x7FC5A5A5

_CLOCK_OF_RESULT = f"""{_HEAD}warploom_clock_of_result(unsigned int other, unsigned int result) {{
  unsigned int now;
  asm volatile(
      "{{ .reg .pred known;\\n"
      "setp.ne.u32 known, %2, {_NO_RESULT};\\n"
      "mov.u32 %0, %1;\\n"
      "@known mov.u32 %0, %%clock; }}"
      : "=r"(now) : "r"(other), "r"(result) : "memory");
  return now;
}}"""


#: The number that the assembly of a record gives to its first word.
_FIRST_WORD = 3


def _record(words: int, pitch: int) -> tuple[str, str]:
    """Name and source of the function that stores so many words of 32 bits, two in each row."""
    name = f"warploom_record_{words}_words_{pitch}"
    stores = []
    for word in range(0, words, 2):
        place, first = f"[place+{word // 2 * pitch}]", _FIRST_WORD + word
        pair = f"v2.b32 {place}, {{%{first}, %{first + 1}}}"
        store = pair if word + 1 < words else f"b32 {place}, %{first}"
        stores.append(f'      "@room st.global.{store};\\n"')
    lines = "\n".join(stores)
    parameters = "".join(f", unsigned int word_{i}" for i in range(words))
    operands = "".join(f', "r"(word_{i})' for i in range(words))
    source = f"""{_HEAD}{name}(
    void* records, unsigned int next, unsigned int end{parameters}) {{
  asm volatile(
      "{{ .reg .pred room; .reg .b64 place;\\n"
      "setp.lt.u32 room, %0, %2;\\n"
      "cvt.u64.u32 place, %0;\\n"
      "add.u64 place, place, %1;\\n"
{lines}
      "@room add.u32 %0, %0, {(words + 1) // 2 * pitch}; }}"
      : "+r"(next)
      : "l"(__cvta_generic_to_global(records)), "r"(end){operands}
      : "memory");
  return next;
}}"""
    return name, source


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
      (unsigned long long)(sm << {ROW_BITS} | (word / streams - {HEADER_ROWS})) << 32 | clock;
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
        values = [T.Cast("uint32", ir.as_expr(value)) for value in (number, chosen)]
        sizes = (T.uint32(self.per_cta), T.uint32(self.recording.ctas))
        return _call("warploom_open_stream", _OPEN, self._place, *values, *sizes)

    def clock(self) -> Any:
        """The clock of the SM."""
        return _call("warploom_clock", _CLOCK)

    def clock_of_result(self, other: Any, result: Any) -> Any:
        """The clock when ``result``, a register of 32 bits, is there; ``other`` is another clock.

        ptxas moves waits for MMAs past the reading of a clock, unless the reading depends on
        what is waited for.
        """
        bits = T.reinterpret("uint32", result)
        return _call("warploom_clock_of_result", _CLOCK_OF_RESULT, other, bits)

    def record(self, following: Any, number: int, clocks: Sequence[Any]) -> Any:
        """Store the number of a group and its clocks at ``following``; where the next one goes."""
        pitch = self._streams * WORD_BYTES
        name, source = _record(1 + len(clocks), pitch)
        end = T.uint32(self.recording.full_rows * pitch)
        return _call(name, source, self._place, following, end, T.uint32(number), *clocks)

    def close(self, following: Any) -> Any:
        """End a stream."""
        values = (self._place, following, T.uint32(self._streams))
        return _call("warploom_close_stream", _CLOSE, *values, returns=False)
