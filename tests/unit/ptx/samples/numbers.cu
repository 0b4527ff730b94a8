// Half, bfloat16 and fp8 arithmetic, matrix instructions, textures, surfaces, inline assembly.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>

__global__ void halves(__half2* h, __nv_bfloat162* b, float* f, __nv_fp8_e4m3* q) {
  int i = threadIdx.x;
  h[i] = __hfma2(h[i], h[i + 1], __float2half2_rn(f[i]));
  b[i] = __hadd2(b[i], __floats2bfloat162_rn(f[i], 1.0f));
  atomicAdd(&h[0], h[1]);
  q[i] = __nv_fp8_e4m3(f[i]);
  f[i] = __half2float(h2sin(h[i]).x) + float(q[i + 1]) + (__hlt(h[i].x, h[i].y) ? 1.f : 1e-30f);
}

__global__ void matrix(const __half* a, const __half* b, float* c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
  fragment<accumulator, 16, 16, 16, float> fc;
  fill_fragment(fc, 0.0f);
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 16);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(c, fc, 16, mem_row_major);
}

__global__ void textures(cudaTextureObject_t t, cudaTextureObject_t layered, cudaSurfaceObject_t s, float4* out) {
  float x = threadIdx.x * 0.5f;
  out[0] = tex2D<float4>(t, x, 1.0f);
  out[1] = tex1Dfetch<float4>(t, 3);
  out[2] = tex3DLod<float4>(t, x, x, x, 2.0f);
  out[3] = tex2DLayered<float4>(layered, x, x, 2);
  out[4] = tex2DGrad<float4>(t, x, x, make_float2(1, 2), make_float2(3, 4));
  out[5] = tex2Dgather<float4>(t, x, x, 1);
  out[6] = texCubemap<float4>(t, x, x, x);
  int value = surf2Dread<int>(s, 4, 8, cudaBoundaryModeZero);
  surf3Dwrite(value, s, 4, 8, 2, cudaBoundaryModeClamp);
}

__global__ void assembly(unsigned* out, unsigned long long* wide, float* f) {
  unsigned a = out[0], b = out[1], r, address = 0;
  asm("{ .reg .pred p, q; .reg .b32 t<3>;\n"
      " setp.lt.and.u32 p|q, %1, %2, !p; // comment\n"
      "@!p lop3.b32 t0, %1, %2, 0x1F, 0xEA; @p mov.b32 t0, -(4 << 2) + 1;\n"
      " selp.u32 %0, t0, 7U, q; }"
      : "=r"(r) : "r"(a), "r"(b));
  asm volatile("vadd.u32.u32.u32.sat %0, %1.b0, %2.h1;" : "=r"(a) : "r"(r), "r"(b));
  asm volatile("prmt.b32.f4e %0, %1, %2, 3;" : "=r"(b) : "r"(a), "r"(r));
  asm volatile("{ .reg .b64 u; mov.b64 u, {%1, %2}; brev.b64 %0, u; }" : "=l"(wide[1]) : "r"(a), "r"(b));
  asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(r) : "r"(a));
  asm volatile("{ .reg .pred ok; shfl.sync.idx.b32 %0|ok, %1, 2, 31, -1; @ok bra after; mov.u32 %0, 0; after: }"
               : "=r"(r) : "r"(b));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(wide[0]));
  asm volatile("red.global.add.v4.f32 [%0], {%1, %1, 0f3F800000, %1};" ::"l"(f), "f"(f[1]) : "memory");
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, _}, [%3+-16];"
               : "=r"(a), "=r"(b), "=r"(r) : "l"(out));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
               : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3]) : "r"(a), "r"(b));
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address), "l"(wide), "r"(a), "r"(b), "r"(address), "l"(wide[0]));
  asm volatile("{ .reg .pred done; wait: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra wait; }"
               ::"r"(address), "r"(a));
  out[2] = a + b + r;
}
