// Elements of arrays as operands of PTX, by register and by constant. No compiler of NVIDIA's writes them; others do,
// for tables of functions.
#include <cstdio>

#include "check.h"

struct Row {
  unsigned long long by_register, by_constant, by_address, by_wide, own;
};

__global__ void read(Row* rows) {
  const unsigned i = threadIdx.x;
  Row row;
  asm volatile(
      "{\n"
      "  .reg .b64 %%wide, %%place; .reg .b32 %%other; .reg .s16 %%minus;\n"
      "  .shared .align 8 .u64 kept[8];\n"
      "  .local .align 4 .u32 mine[16];\n"
      "  cvt.u64.u32 %%wide, %5;\n"
      "  add.u64 %%wide, %%wide, 10;\n"
      "  st.shared.u64 kept[%5], %%wide;\n"
      "  bar.sync 0;\n"
      "  xor.b32 %%other, %5, 1;\n"
      "  ld.shared.u64 %0, kept[%%other];\n"
      "  ld.shared.u64 %1, kept[3];\n"
      "  mov.b16 %%minus, -1;\n"
      "  mov.u64 %%place, kept[%%minus+5];\n"
      "  ld.shared.u64 %2, [%%place];\n"
      "  mov.b64 %%wide, {%5, 12345};\n"  // an index has 32 bits
      "  ld.shared.u64 %3, kept[%%wide];\n"
      "  st.local.u32 mine[%5], %%other;\n"
      "  st.local.u32 mine[%5+8], %5;\n"
      "  ld.local.u32 %%other, mine[%5];\n"
      "  cvt.u64.u32 %4, %%other;\n"
      "}\n"
      : "=l"(row.by_register), "=l"(row.by_constant), "=l"(row.by_address), "=l"(row.by_wide), "=l"(row.own)
      : "r"(i)
      : "memory");
  rows[i] = row;
}

int main() {
  Row* rows = nullptr;
  CHECK(cudaMallocManaged(&rows, 8 * sizeof(Row)));
  read<<<1, 8>>>(rows);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  for (unsigned long long i = 0; i < 8; ++i) {
    const Row& row = rows[i];
    if (row.by_register != 10 + (i ^ 1) || row.by_constant != 13 || row.by_address != 14 || row.by_wide != 10 + i ||
        row.own != (i ^ 1)) {
      std::printf("thread %llu: %llu %llu %llu %llu %llu\n", i, row.by_register, row.by_constant, row.by_address,
                  row.by_wide, row.own);
      return 1;
    }
  }
  std::printf("all elements are right\n");
}
