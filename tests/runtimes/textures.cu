// A texture fetch, in an image of its own: the second one that programs of this kind register.
extern "C" __global__ void fetch(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex1Dfetch<float>(texture, threadIdx.x);
}
