// A texture fetch, in an image of its own: a device that has no textures refuses the whole image.
extern "C" __global__ void fetch(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex1Dfetch<float>(texture, threadIdx.x);
}
