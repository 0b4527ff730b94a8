// The kernels of pocl.cu, for both languages: pocl.cu defines these words for CUDA, and this file for OpenCL C.
#ifdef __OPENCL_VERSION__
#define KERNEL __kernel void
#define GLOBAL __global
#define SHARED __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define LOCAL(axis) get_local_id(axis)
#define GROUP(axis) get_group_id(axis)
#define GROUPS(axis) get_num_groups(axis)
#define LOCALS(axis) get_local_size(axis)
#define ADD(where, value) atomic_add(where, value)
#define INVERSE_ROOT(x) rsqrt(x)
#endif

#define TILE 16
#define BINS 256
#define THREADS 256

KERNEL multiply(GLOBAL const float* a, GLOBAL const float* b, GLOBAL float* c, int n) {
  SHARED float tile_a[TILE][TILE];
  SHARED float tile_b[TILE][TILE];
  const int x = LOCAL(0), y = LOCAL(1), row = GROUP(1) * TILE + y, column = GROUP(0) * TILE + x;
  float sum = 0;
  for (int at = 0; at < n; at += TILE) {
    tile_a[y][x] = a[row * n + at + x];
    tile_b[y][x] = b[(at + y) * n + column];
    BARRIER;
    for (int k = 0; k < TILE; ++k) sum += tile_a[y][k] * tile_b[k][x];
    BARRIER;
  }
  c[row * n + column] = sum;
}

// Bodies are four numbers: a place and a mass.
KERNEL attract(GLOBAL const float* bodies, GLOBAL float* forces, int n) {
  SHARED float near_x[THREADS];
  SHARED float near_y[THREADS];
  SHARED float near_z[THREADS];
  SHARED float near_mass[THREADS];
  const int me = LOCAL(0), i = GROUP(0) * THREADS + me;
  const float x = bodies[4 * i], y = bodies[4 * i + 1], z = bodies[4 * i + 2];
  float fx = 0, fy = 0, fz = 0;
  for (int at = 0; at < n; at += THREADS) {
    near_x[me] = bodies[4 * (at + me)];
    near_y[me] = bodies[4 * (at + me) + 1];
    near_z[me] = bodies[4 * (at + me) + 2];
    near_mass[me] = bodies[4 * (at + me) + 3];
    BARRIER;
    for (int j = 0; j < THREADS; ++j) {
      const float dx = near_x[j] - x, dy = near_y[j] - y, dz = near_z[j] - z;
      const float inverse = INVERSE_ROOT(dx * dx + dy * dy + dz * dz + 0.01f);
      const float pull = near_mass[j] * inverse * inverse * inverse;
      fx += pull * dx;
      fy += pull * dy;
      fz += pull * dz;
    }
    BARRIER;
  }
  forces[4 * i] = fx;
  forces[4 * i + 1] = fy;
  forces[4 * i + 2] = fz;
}

KERNEL add_up(GLOBAL const float* data, GLOBAL float* sums, int n) {
  SHARED float part[THREADS];
  const int me = LOCAL(0);
  float mine = 0;
  for (int i = GROUP(0) * THREADS + me; i < n; i += GROUPS(0) * THREADS) mine += data[i];
  part[me] = mine;
  BARRIER;
  for (int by = THREADS / 2; by > 0; by /= 2) {
    if (me < by) part[me] += part[me + by];
    BARRIER;
  }
  if (me == 0) sums[GROUP(0)] = part[0];
}

KERNEL escape(GLOBAL int* steps, int width, int height, int most) {
  const int x = GROUP(0) * TILE + LOCAL(0), y = GROUP(1) * TILE + LOCAL(1);
  const float cx = -2.2f + 3.2f * x / width, cy = -1.2f + 2.4f * y / height;
  float zx = 0, zy = 0;
  int n = 0;
  while (n < most && zx * zx + zy * zy < 4) {
    const float next = zx * zx - zy * zy + cx;
    zy = 2 * zx * zy + cy;
    zx = next;
    ++n;
  }
  steps[y * width + x] = n;
}

KERNEL count(GLOBAL const unsigned* values, GLOBAL unsigned* bins, int n) {
  SHARED unsigned own[BINS];
  const int me = LOCAL(0);
  own[me] = 0;
  BARRIER;
  for (int i = GROUP(0) * THREADS + me; i < n; i += GROUPS(0) * THREADS) ADD(&own[values[i] % BINS], 1u);
  BARRIER;
  ADD(&bins[me], own[me]);
}
