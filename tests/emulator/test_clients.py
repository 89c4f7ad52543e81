"""Programs that know nothing of warploom, on the emulator: `warploom emulate`.

Each test is a process. cuda.core comes with the package; the other clients are tested where they
are installed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

from warploom.errors import ToolchainError
from warploom.runtime.emulator_libraries import find_libraries

try:
    find_libraries()
except ToolchainError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture
def emulate(tmp_path):
    """`emulate(file, *arguments)` is `warploom emulate`; of text it makes a script first."""

    def run(file, *arguments: str) -> subprocess.CompletedProcess:
        if isinstance(file, str):
            script = tmp_path / "client.py"
            script.write_text(file)
            file = script
        command = "import sys; from warploom.cli import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-c", command, "emulate", str(file), *arguments],
            env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")},
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip

    return run


def needs(module: str):
    found = importlib.util.find_spec(module) is not None
    return pytest.mark.skipif(not found, reason=f"{module} is not installed")


CUDA_CORE = """
import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

device = Device(0)
device.set_current()
assert device.compute_capability == (9, 0)
code = '''extern "C" __global__ void add(const float* a, float* b, int n, float s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i] + s;
}'''
ptx = Program(code, "c++", ProgramOptions(arch="compute_90")).compile("ptx")
kernel = ptx.get_kernel("add")
stream = device.create_stream()
a, b = (device.memory_resource.allocate(400, stream=stream) for _ in range(2))
host = np.arange(100, dtype=np.float32)

def check(expected):
    result = np.full_like(host, np.nan)
    assert driver.cuMemcpyDtoH(result.ctypes.data, int(b.handle), 400)[0] == 0
    np.testing.assert_array_equal(result, expected)

assert driver.cuMemcpyHtoD(int(a.handle), host.ctypes.data, 400)[0] == 0
config = LaunchConfig(grid=4, block=32)
launch(stream, config, kernel, a, b, np.int32(100), np.float32(2.5))
stream.sync()
check(host + np.float32(2.5))

builder = device.create_graph_builder()
builder.begin_building()
launch(builder, config, kernel, b, b, np.int32(100), np.float32(1))
graph = builder.end_building().complete()
for _ in range(3):
    graph.launch(stream)
stream.sync()
check(host + np.float32(5.5))

cubin = Program(code, "c++", ProgramOptions(arch="sm_90")).compile("cubin")
try:
    cubin.get_kernel("add")
except Exception as error:
    assert "machine code" in str(error), error
else:
    raise AssertionError("a cubin has no PTX")
error, = driver.cuMemcpyDtoH(host.ctypes.data, int(b.handle) + 4, 400)
assert "goes beyond its end" in driver.cuGetErrorString(error)[1].decode()
print("all is well")
"""


def test_cuda_core(emulate):
    result = emulate(CUDA_CORE)
    assert result.stdout == "all is well\n", result.stderr[-3000:]


@needs("numba_cuda")
def test_numba(emulate):
    result = emulate(
        """
import numpy as np
from numba import cuda

@cuda.jit
def add(a, b, c):
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]

a = np.arange(100, dtype=np.float32)
c = np.full_like(a, np.nan)
add[4, 32](a, 2 * a, c)
assert (c == 3 * a).all()
print("all is well")
"""
    )
    assert result.stdout == "all is well\n", result.stderr[-3000:]


@needs("cupy")
def test_cupy(emulate):
    result = emulate(
        """
import cupy, numpy as np

add = cupy.RawKernel('''extern "C" __global__ void add(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i] + 1;
}''', "add")
a = cupy.asarray(np.arange(100, dtype=np.float32))
b = cupy.empty_like(a)
add((4,), (32,), (a, b, np.int32(100)))
assert (cupy.asnumpy(b) == np.arange(100) + 1).all()
assert float((a + b).sum()) == 2 * 4950 + 100
print("all is well")
"""
    )
    assert result.stdout == "all is well\n", result.stderr[-3000:]


@needs("triton")
@needs("torch")
def test_triton(emulate):
    """Tensors of PyTorch for CPUs, in memory of the emulated device."""
    result = emulate(
        """
import ctypes
import torch, triton, triton.language as tl
from triton.backends.nvidia.driver import CudaDriver

driver = CudaDriver()
driver.get_current_device = lambda: 0
driver.set_current_device = lambda device: None
driver.get_current_stream = lambda device: 0
driver.get_device_capability = lambda device=0: (9, 0)
triton.runtime.driver.set_active(driver)
cuda = ctypes.CDLL("libcuda.so.1")

def empty(n):
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4 * n)) == 0
    memory = (ctypes.c_float * n).from_address(pointer.value)
    return torch.frombuffer(memory, dtype=torch.float32)

@triton.jit
def add(a, b, c, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(c + i, tl.load(a + i, i < n) + tl.load(b + i, i < n), i < n)

a, b, c = empty(1000), empty(1000), empty(1000)
a.copy_(torch.arange(1000))
b.copy_(3 * a)
c.fill_(float("nan"))
add[(4,)](a, b, c, 1000, 256)
assert torch.equal(c, 4 * a)
print("all is well")
"""
    )
    assert result.stdout == "all is well\n", result.stderr[-3000:]


PROGRAM = r"""
#include <cstdio>
#include <cstring>
__constant__ float scale;
__device__ int counter;
__managed__ int managed;
__global__ void add(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { b[i] = scale * a[i]; atomicAdd(&counter, 1); }
  if (i == 0) { managed = n; printf("from the kernel: %d\n", n); }
}
__global__ void wild(int* p) { *p = 1; }
#define CHECK(call) if (cudaError_t e = (call)) \
  { printf("%s: %s\n", #call, cudaGetErrorString(e)); return 1; }
int main(int count, char** words) {
  const int n = 1000;
  float host[n], factor = 3, *a, *b;
  for (int i = 0; i < n; ++i) host[i] = i;
  CHECK(cudaMemcpyToSymbol(scale, &factor, sizeof factor));
  CHECK(cudaMalloc(&a, sizeof host));
  CHECK(cudaMallocManaged(&b, sizeof host));
  CHECK(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice));
  cudaStream_t stream;
  cudaEvent_t event;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&event));
  add<<<(n + 127) / 128, 128, 0, stream>>>(a, b, n);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaEventSynchronize(event));
  int counted = 0, bad = 0, ctas = 0;
  CHECK(cudaMemcpyFromSymbol(&counted, counter, sizeof counted));
  for (int i = 0; i < n; ++i) bad += b[i] != 3.f * i;
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, add, 128, 0));
  printf("sm_%d%d bad=%d counted=%d managed=%d ctas=%d\n", device.major, device.minor, bad, counted,
         managed, ctas);
  if (count > 1 && !strcmp(words[1], "wild")) {
    wild<<<1, 1>>>(reinterpret_cast<int*>(64));
    CHECK(cudaDeviceSynchronize());
  }
  if (count > 1 && !strcmp(words[1], "texture")) {
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocArray(&array, &format, 8, 8, 0));
  }
  return bad;
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("runtime", ["static", "shared"])
@pytest.mark.in_turn(8)
def test_a_program_of_nvcc(emulate, tmp_path, runtime):
    source, program = tmp_path / "program.cu", tmp_path / "program"
    source.write_text(PROGRAM)
    compiler = ["nvcc", "-cudart", runtime, "-o", str(program), str(source)]
    subprocess.run([*compiler, "-arch=sm_90"], check=True, capture_output=True)
    result = emulate(program)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "from the kernel: 1000\n" in result.stdout
    assert "sm_90 bad=0 counted=1000 managed=1000 ctas=16\n" in result.stdout
    result = emulate(program, "wild")
    assert result.returncode == 1 and "global address 0x40" in result.stdout + result.stderr
    result = emulate(program, "texture")
    assert result.returncode == 1 and "cudaMallocArray is not served" in result.stdout
    if runtime == "static":  # machine code alone
        only = "-gencode", "arch=compute_90,code=sm_90"
        subprocess.run([*compiler, *only], check=True, capture_output=True)
        result = emulate(program)
        assert result.returncode == 1
        assert "only machine code for sm_90" in result.stdout + result.stderr
