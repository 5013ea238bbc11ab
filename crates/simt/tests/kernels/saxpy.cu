// The example of the README.
extern "C" __global__ void saxpy(float a, const float* __restrict__ x, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
