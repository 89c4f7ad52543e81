"""The source of the probe that times ``wgmma``: one loop for each width, of one type and place."""

from __future__ import annotations

from dataclasses import dataclass

#: Columns of an instruction.
WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class Kind:
    """A type of operands.

    Attributes
    ----------
    name : str
        As NumPy and ml_dtypes call it.
    instruction : str
        Between shape and operands: types of D, A and B.
    bytes : int
        Of an element.
    integer : bool
        Whether D is int32; else it is float32.
    flags : str
        What follows ``scale-d``: scales of A and B, transpositions.
    """

    name: str
    instruction: str
    bytes: int
    integer: bool = False
    flags: str = ", 1, 1"


KINDS = {
    "f16": Kind("float16", "f32.f16.f16", 2, flags=", 1, 1, 0, 0"),
    "bf16": Kind("bfloat16", "f32.bf16.bf16", 2, flags=", 1, 1, 0, 0"),
    "tf32": Kind("float32", "f32.tf32.tf32", 4),
    "e4m3": Kind("float8_e4m3fn", "f32.e4m3.e4m3", 1),
    "s8": Kind("int8", "s32.s8.s8", 1, integer=True, flags=""),
}


def issue(kind: Kind, width: int, registers: bool) -> str:
    """A device function that issues one instruction of 32 bytes of K."""
    count = width // 2
    letter, scalar = ("r", "int") if kind.integer else ("f", "float")
    results = ", ".join(f"%{i}" for i in range(count))
    a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}" if registers else f"%{count}"
    b = f"%{count + (4 if registers else 1)}"
    # Operands in registers cannot be transposed: the flag of A is missing.
    flags = kind.flags.removesuffix(", 0") if registers else kind.flags
    given = ['"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])' if registers else '"l"(a)', '"l"(b)']
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    name = f"wgmma.mma_async.sync.aligned.m64n{width}k{32 // kind.bytes}.{kind.instruction}"
    takes = "const unsigned* a" if registers else "unsigned long long a"
    return (
        f"MB_INLINE void issue_{width}({scalar}* d, {takes}, unsigned long long b) {{\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, 1, 0;\\n'
        f'{name} {{{results}}}, {a}, {b}, p{flags};\\n}}\\n"\n'
        f"    : {outputs} : {', '.join(given)});\n}}\n"
    )


def source(kind: Kind, registers: bool) -> str:
    """The probe: loops over a K of 128 bytes, of two kinds.

    Parameters of the launch: steps, width, and whether D is written.
    """
    scalar = "int" if kind.integer else "float"
    loops = "".join(
        f"    case {width}: loop<{width}>(p, data, out, a_shared, b, mine); break;\n"
        for width in WIDTHS
    )
    issues = "".join(issue(kind, width, registers) for width in WIDTHS)
    select = "".join(f"  if constexpr (W == {width}) issue_{width}(d, a, b);\n" for width in WIDTHS)
    takes = "const unsigned* a" if registers else "unsigned long long a"
    operand = "fragments[k]" if registers else "a + 2 * k"
    return _FRAME.format(
        scalar=scalar,
        letter="r" if kind.integer else "f",
        issues=issues,
        select=select,
        takes=takes,
        operand=operand,
        loops=loops,
    )


#: Operands are rows of 128 bytes with the swizzle of 128 bytes, as kernels have them: 64 rows of A
#: for each warpgroup at the beginning of memory, behind two such blocks 256 rows of B.
_FRAME = r"""
{issues}
template <int W> MB_INLINE void issue({scalar}* d, {takes}, unsigned long long b) {{
{select}}}
MB_INLINE unsigned long long descriptor(unsigned address) {{
  return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}}
template <int W>
MB_INLINE void loop(const int* p, void* data, long long* out, unsigned char* a_shared,
                    unsigned long long b, unsigned t) {{
  const int steps = p[0], write = p[2];
  {scalar} d[W / 2];
  #pragma unroll
  for (int i = 0; i < W / 2; ++i) d[i] = 0;
  unsigned fragments[4][4];
  const int warp = t / 32, lane = t % 32;
  #pragma unroll
  for (int k = 0; k < 4; ++k)
    #pragma unroll
    for (int j = 0; j < 4; ++j) {{
      const int row = warp * 16 + lane / 4 + 8 * (j % 2);
      const int byte = 32 * k + lane % 4 * 4 + 16 * (j / 2), chunk = byte / 16 ^ row % 8;
      fragments[k][j] = *(const unsigned*)(a_shared + row * 128 + chunk * 16 + byte % 16);
    }}
  const unsigned long long a = descriptor(mb_address(a_shared));
  __syncthreads();
  long long ns = mb_ns(), begin = mb_clock();
  #pragma unroll 1
  for (int s = 0; s < steps; ++s) {{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
    #pragma unroll
    for (int k = 0; k < 4; ++k) issue<W>(d, {operand}, b + 2 * k);
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" : : : "memory");
  }}
  long long issued = mb_clock();
  asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
  #pragma unroll
  for (int i = 0; i < W / 2; ++i) asm volatile("" : "+{letter}"(d[i]) : : "memory");
  long long end = mb_clock();
  if (threadIdx.x == 0) {{
    mb_times(out, begin, end, ns, mb_ns());
    out[blockIdx.x * MB_SLOTS + 6] = issued;
  }}
  if (write && blockIdx.x == 0) {{
    {scalar}* to = ({scalar}*)((unsigned char*)data + 384 * 128) + (long long)threadIdx.x * (W / 2);
    #pragma unroll
    for (int i = 0; i < W / 2; ++i) to[i] = d[i];
  }}
}}
MB_PROBE {{
  unsigned char* shared = mb_aligned(raw);
  // A warpgroup's 64 rows of A each, then B, all of them swizzled.
  for (int piece = threadIdx.x; piece < 384 * 8; piece += blockDim.x) {{
    const int row = piece / 8, column = piece % 8 ^ row % 8;
    *(uint4*)(shared + row * 128 + column * 16) = ((const uint4*)data)[piece];
  }}
  mb_fence_async();
  __syncthreads();
  const unsigned group = threadIdx.x / 128, mine = threadIdx.x % 128;
  unsigned char* a_shared = shared + group * 64 * 128;
  const unsigned long long b = descriptor(mb_address(shared + 128 * 128));
  switch (p[1]) {{
{loops}  }}
}}
"""
