"""CuPy: elementwise and reduction kernels, matrix products, FFT, sort, a solve, sparse products, a raw kernel."""
import cupy
import cupyx.scipy.sparse as sparse
import report

random = cupy.random.RandomState(1)
a, b = random.rand(1024, 1024), random.rand(1024, 1024)
rows = sparse.random(4096, 4096, density=0.01, format="csr", random_state=random)
vector = random.rand(4096)
own = cupy.RawKernel(r"""
extern "C" __global__ void swap_halves(const double* in, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[(i + n / 2) % n] * 2;
}""", "swap_halves")
squares = cupy.ElementwiseKernel("float64 x, float64 y", "float64 z", "z = (x - y) * (x - y)", "squares")


def step() -> list[float]:
    out = cupy.empty_like(vector)
    own((16,), (256,), (vector, out, 4096))
    return [float(cupy.linalg.norm(a @ b)), float(squares(a, b).sum()), float(cupy.abs(cupy.fft.fft2(a)).sum()),
            float(cupy.sort(a.ravel())[12345]), float(cupy.linalg.solve(a, b)[0].sum()),
            float((rows @ vector).sum()), float(out[7])]


report.timed("cupy: mixed step", step)
report.result("cupy: results", step(), within=1e-8)
