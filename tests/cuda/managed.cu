// Managed memory and managed variables: both sides read and write the same addresses.
// vm: yes
#include <cstring>

#include "check.h"

__managed__ int total = 5;
__managed__ float curve[1000];

struct Node {
  int value;
  Node* next;
};

__global__ void fill(int* data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = data[i] * 2 + total, curve[i % 1000] = 0.25f * (i % 1000);
}

__global__ void walk(Node* list, int* sum) {
  for (Node* node = list; node; node = node->next) *sum += node->value;
}

int main() {
  constexpr int kCount = 50000;
  int* data;
  CHECK(cudaMallocManaged(&data, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) data[i] = i;
  EXPECT_EQ(total, 5);
  total = 7;
  fill<<<(kCount + 255) / 256, 256>>>(data, kCount);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(data[i], 2 * i + 7);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(curve[i], 0.25f * i);

  Node* list = nullptr;  // pointers inside managed memory are good on both sides
  for (int i = 1; i <= 10; ++i) {
    Node* node;
    CHECK(cudaMallocManaged(&node, sizeof(Node)));
    *node = {i, list};
    list = node;
  }
  total = 0;
  walk<<<1, 1>>>(list, &total);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(total, 55);

  cudaMemLocation location{cudaMemLocationTypeDevice, 0};
  CHECK(cudaMemPrefetchAsync(data, kCount * sizeof(int), location, 0, 0));
  CHECK(cudaMemAdvise(data, kCount * sizeof(int), cudaMemAdviseSetReadMostly, location));
  CHECK(cudaMemset(data, 0, kCount * sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(data[kCount - 1], 0);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, data));
  EXPECT(attributes.type == cudaMemoryTypeManaged && attributes.devicePointer == data);
  CHECK(cudaFree(data));
  EXPECT(cudaFree(data) != cudaSuccess);
  cudaGetLastError();
  return passed();
}
