"""Device functions on the emulator: calls, frames, and functions of the system."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, kernel, launch, load

SEEDS = range(1, 5)

FIBONACCI = """
.func (.param .b32 result) fibonacci(.param .b32 input)
{
.reg .pred %p;
.reg .b32 %r<5>;
ld.param.u32 %r1, [input];
setp.lt.u32 %p, %r1, 2;
@%p bra END;
sub.u32 %r2, %r1, 1;
{
.param .b32 param0;
st.param.b32 [param0+0], %r2;
.param .b32 retval0;
call.uni (retval0), fibonacci, (param0);
ld.param.b32 %r3, [retval0+0];
}
sub.u32 %r2, %r1, 2;
{
.param .b32 param0;
st.param.b32 [param0+0], %r2;
.param .b32 retval0;
call.uni (retval0), fibonacci, (param0);
ld.param.b32 %r4, [retval0+0];
}
add.u32 %r1, %r3, %r4;
END:
st.param.b32 [result+0], %r1;
ret;
}
"""

#: Functions with registers as parameters, and a table of their addresses.
POINTERS = """
.func (.reg .b32 d) twice(.reg .b32 a) { add.u32 d, a, a; ret; }
.func (.reg .b32 d) square(.reg .b32 a) { mul.lo.u32 d, a, a; ret; }
.func (.reg .b32 d) successor(.reg .b32 a) { add.u32 d, a, 1; ret; }
.global .align 8 .u64 table[3] = {twice, square, successor};
"""

CALL_POINTER = """
prototype: .callprototype (.reg .b32 _) _ (.reg .b32 _);
rem.u32 %r1, %t, 3;
mul.wide.u32 %d1, %r1, 8;
mov.u64 %d2, table;
add.u64 %d1, %d1, %d2;
ld.global.u64 %d3, [%d1];
call (%r9), %d3, (%t), prototype;
activemask.b32 %r2;
setp.ne.u32 %q0, %r2, 0xffffffff;
@%q0 trap;
"""

STORE = "mul.wide.u32 %d20, %t, 4;\nadd.u64 %d20, %d20, %p0;\nst.global.u32 [%d20], %r9;"


def run(functions: str, body: str, **options) -> np.ndarray:
    """Run a body that leaves its result in ``%r9``; returns it for each thread of a warp."""
    ptx = functions + kernel(1, f"{body}\n{STORE}")
    return launch(ptx, [np.full(32, 0xDEAD, np.uint32)], **options)[0]


def call(name: str, argument: str, result: str = "%r9") -> str:
    return (
        f"{{\n.param .b32 param0;\nst.param.b32 [param0], {argument};\n.param .b32 retval0;\n"
        f"call.uni (retval0), {name}, (param0);\nld.param.b32 {result}, [retval0];\n}}\n"
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_recursion_that_diverges(seed):
    body = "rem.u32 %r1, %t, 11;\n" + call("fibonacci", "%r1")
    numbers = [0, 1]
    while len(numbers) < 11:
        numbers.append(numbers[-1] + numbers[-2])
    expected = np.array(numbers)[np.arange(32) % 11]
    np.testing.assert_array_equal(run(FIBONACCI, body, seed=seed, limit=1 << 26), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_pointers_that_differ_between_lanes(seed):
    t = np.arange(32)
    expected = np.choose(t % 3, [2 * t, t * t, t + 1])
    np.testing.assert_array_equal(run(POINTERS, CALL_POINTER, seed=seed), expected)


def test_only_some_lanes_call_and_meet_the_others_again():
    body = """
mov.u32 %r9, 7;
setp.lt.u32 %q0, %t, 10;
@%q0 call (%r9), square, (%t);
activemask.b32 %r2;
popc.b32 %r2, %r2;
mad.lo.u32 %r9, %r2, 1000, %r9;
"""
    t = np.arange(32)
    np.testing.assert_array_equal(run(POINTERS, body), np.where(t < 10, t * t, 7) + 32000)


def test_a_guarded_return_and_an_exit_within_a_function():
    functions = """
.func (.reg .b32 d) pick(.reg .b32 a)
{
.reg .pred %p;
mov.u32 d, 1;
setp.lt.u32 %p, a, 8;
@%p ret;
mov.u32 d, 2;
setp.ge.u32 %p, a, 24;
@%p exit;
add.u32 d, d, a;
ret;
}
"""
    t = np.arange(32)
    expected = np.where(t < 8, 1, np.where(t >= 24, 0xDEAD, 2 + t))
    np.testing.assert_array_equal(run(functions, "call (%r9), pick, (%t);"), expected)


def test_structures_are_passed_by_value():
    functions = """
.func (.param .align 8 .b8 out[16]) swap(.param .align 8 .b8 in[16])
{
.reg .b64 %d<3>;
ld.param.v2.b64 {%d1, %d2}, [in];
st.param.b64 [out+8], %d1;
st.param.b64 [out+0], %d2;
st.param.b64 [in+0], 99;
ret;
}
"""
    body = """
cvt.u64.u32 %d1, %t;
{
.param .align 8 .b8 in[16];
.param .align 8 .b8 out[16];
st.param.v2.b64 [in], {%d1, 5};
call.uni (out), swap, (in);
ld.param.v2.b64 {%d2, %d3}, [out];
ld.param.b64 %d4, [in];
}
cvt.u32.u64 %r1, %d2;
cvt.u32.u64 %r2, %d3;
cvt.u32.u64 %r3, %d4;
mad.lo.u32 %r9, %r1, 100, %r2;
mad.lo.u32 %r9, %r3, 10000, %r9;
"""
    t = np.arange(32)
    np.testing.assert_array_equal(run(functions, body), 500 + t + 10000 * t)


def test_frames_of_local_variables_are_separate():
    functions = """
.func (.reg .b32 d) sum(.reg .b32 n)
{
.local .align 4 .b32 mine[2];
.reg .pred %p;
.reg .b32 %r<3>;
.reg .b64 %d<2>;
mov.u64 %d1, mine;
cvta.local.u64 %d1, %d1;
st.u32 [%d1+4], n;
mov.u32 d, 0;
setp.eq.u32 %p, n, 0;
@%p ret;
sub.u32 %r1, n, 1;
call (%r2), sum, (%r1);
ld.local.u32 %r1, [mine+4];
add.u32 d, %r1, %r2;
ret;
}
"""
    t = np.arange(32)
    np.testing.assert_array_equal(run(functions, "call (%r9), sum, (%t);"), t * (t + 1) // 2)


def test_recursion_without_end():
    endless = """
.func forever(.reg .b32 n) { call forever, (n); ret; }
"""
    with pytest.raises(EmulatorError, match="forever is nested 1025 calls deep; 1024 are allowed"):
        run(endless, "call forever, (%t);")


def test_frames_that_are_too_large():
    large = """
.func deep(.reg .b32 n) { .local .b8 frame[65536]; call deep, (n); ret; }
"""
    with pytest.raises(EmulatorError, match="bytes of local memory for its calls; 524288 are"):
        run(large, "call deep, (%t);")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("call absent, (%t);", "the function 'absent' has no body"),
        ("call (%r9), twice;", "passes 0 arguments and the function has 1"),
        ("call (%d1), twice, (%t);", "results 1 have 8 bytes and those of the function 4"),
        ("mov.u64 %d1, nowhere;", "'nowhere' is neither a variable nor a function"),
        ("call kernel;", "'kernel' is an entry"),
    ],
)
def test_calls_that_cannot_be_are_refused_when_loaded(body, reason):
    with pytest.raises(EmulatorError, match=reason):
        load(POINTERS + kernel(1, body))


def test_calls_through_a_wild_pointer():
    with pytest.raises(EmulatorError, match="0x7b, which is not the address of a function"):
        run(POINTERS, "mov.u64 %d1, 123;\ncall (%r9), %d1, (%t);")


def test_what_a_function_lacks_is_reported_where_it_can_be_reached():
    unknown = ".func odd() { frobnicate.b32; ret; }\n"
    load(unknown + kernel(1, ""))
    with pytest.raises(EmulatorError, match=r"line 4: the instruction 'frobnicate.b32'"):
        load(unknown + kernel(1, "call odd;"))


DECLARATIONS = """
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d,
                           .param .b64 e);
.extern .func (.param .b64 result) malloc(.param .b64 bytes);
.extern .func free(.param .b64 block);
"""


def text(name: str, value: str) -> str:
    data = [*value.encode(), 0]
    return f".global .align 1 .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};\n"


def print_call(values: list[tuple[str, str]]) -> str:
    """Print ``format`` with values such as ("u32", "5"), laid out as C lays out arguments."""
    lines, at = ["mov.u64 %d1, values;"], 0
    for kind, value in values:
        size = int(kind[1:]) // 8
        at = -(-at // size) * size
        lines.append(f"st.local.{kind} [%d1+{at}], {value};")
        at += size
    return (
        "\n".join(lines)
        + """
cvta.local.u64 %d2, %d1;
mov.u64 %d3, format;
cvta.global.u64 %d3, %d3;
{
.param .b64 param0;
.param .b64 param1;
.param .b32 retval0;
st.param.b64 [param0], %d3;
st.param.b64 [param1], %d2;
call.uni (retval0), vprintf, (param0, param1);
ld.param.b32 %r9, [retval0];
}
"""
    )


FORMATS = [
    ("%d|%5d|%-5d|%05d|%+d", [("s32", v) for v in (-3, 42, 42, -42, 7)]),
    ("%u|%x|%X|%#x|%o|%#o", [("u32", v) for v in (3000000000, 255, 255, 255, 8, 8)]),
    ("%hd|%hhu|%c|%3c|", [("u32", v) for v in (65535, 513, 65, 66)]),
    ("%ld|%llu|%zx|%.5d|%8.3d|", [("u64", v) for v in (-5, 1 << 40, 255)] + [("s32", 7)] * 2),
    (
        "%f|%.2f|%10.3e|%-10.1f|%g|%G",
        [("f64", v) for v in (1.5, 2.675, 12345.678, 2.0, 1e-5, 1e20)],
    ),
    ("%%|%d%%|%q", [("s32", 9)]),
    ("%*d|%.*f|%i", [("s32", 6), ("s32", 42), ("s32", 1), ("f64", 2.25), ("s32", 0)]),
]


CONVERSION = r"(%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z)?[a-zA-Z%])"


def c_format(template: str, values: list[tuple[str, float]]) -> str:
    """What C prints, by Python's formatting of one conversion after the other."""
    left, result = [v for _, v in values], []
    for piece in re.split(CONVERSION, template):
        if not piece.startswith("%") or piece == "%q":
            result.append(piece)
            continue
        if piece == "%%":
            result.append("%")
            continue
        while "*" in piece:
            piece = piece.replace("*", str(left.pop(0)), 1)
        value = left.pop(0)
        if "hh" in piece:
            value &= 255
        elif "h" in piece:
            value = int(np.uint16(value).astype(np.int16))
        piece = re.sub(r"hh|h|ll|l|z", "", piece)
        if piece == "%#o":
            piece, value = "0%o", value
        result.append(piece % (chr(value) if piece.endswith("c") else value))
    return "".join(result)


@pytest.mark.parametrize(("template", "values"), FORMATS)
def test_printf(template, values, capfd):
    shown = [
        (kind, f"0d{np.float64(v).view(np.uint64):016x}" if kind == "f64" else str(v))
        for kind, v in values
    ]
    functions = DECLARATIONS + text("format", template + "\n")
    body = ".local .align 8 .b8 values[128];\n" + print_call(shown)
    ptx = functions + kernel(1, f"{body}\n{STORE}")
    counts = launch(ptx, [np.zeros(2, np.uint32)], block=(2, 1, 1))[0]
    expected = c_format(template, values) + "\n"
    assert capfd.readouterr().out == 2 * expected
    np.testing.assert_array_equal(counts, len(values))


def test_strings_are_printed_in_the_order_of_clusters(capfd):
    functions = DECLARATIONS + text("format", "%s %d\n") + text("word", "here")
    body = """
.local .align 8 .b8 values[16];
mov.u32 %r1, %ctaid.x;
mov.u64 %d5, word;
cvta.global.u64 %d5, %d5;
""" + print_call([("u64", "%d5"), ("u32", "%r1")])
    launch(functions + kernel(1, body), [np.zeros(1, np.uint32)], grid=(6, 1, 1), block=(1, 1, 1))
    assert capfd.readouterr().out == "".join(f"here {i}\n" for i in range(6))


def test_a_failed_assertion_names_its_place():
    functions = (
        DECLARATIONS + text("message", "x < 3") + text("file", "k.cu") + text("where", "void f()")
    )
    addresses = "".join(
        f"mov.u64 %d{i}, {name};\ncvta.global.u64 %d{i}, %d{i};\n"
        for i, name in enumerate(("message", "file", "where"), 1)
    )
    body = (
        addresses
        + """
setp.eq.u32 %q0, %t, 5;
@!%q0 ret;
{
.param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
st.param.b64 [a], %d1; st.param.b64 [b], %d2; st.param.b32 [c], 17;
st.param.b64 [d], %d3; st.param.b64 [e], 1;
call.uni __assertfail, (a, b, c, d, e);
}
"""
    )
    expected = r"k.cu:17: void f\(\): block: \[0,0,0\], thread: \[5,0,0\] Assertion `x < 3` failed"
    with pytest.raises(EmulatorError, match=expected):
        run(functions, body)


HEAP = """
{
.param .b64 bytes; .param .b64 block;
st.param.b64 [bytes], 12;
call.uni (block), malloc, (bytes);
ld.param.b64 %d1, [block];
}
"""
FREE = "{\n.param .b64 block;\nst.param.b64 [block], %d1;\ncall.uni free, (block);\n}\n"


def test_blocks_of_the_heap_are_separate():
    body = HEAP + "st.u32 [%d1+8], %t;\nbar.sync 0;\nld.u32 %r9, [%d1+8];\n" + FREE
    np.testing.assert_array_equal(run(DECLARATIONS, body), np.arange(32))


def test_freeing_twice():
    with pytest.raises(EmulatorError, match="which is no block of malloc, or was freed before"):
        run(DECLARATIONS, HEAP + FREE + FREE)


def test_more_than_the_heap_has_gives_null():
    body = HEAP.replace("12", "9000000") + "cvt.u32.u64 %r9, %d1;"
    np.testing.assert_array_equal(run(DECLARATIONS, body), 0)
