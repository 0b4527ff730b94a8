/* NVML of a host with three GPUs, the last of which is cut into two MIG instances. A file FAKE_NVML/xid-INDEX makes
   that GPU report the error whose number stands in it, once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gpu {
  const char* uuid;
  int index;
};
static struct gpu gpus[] = {{"GPU-00000000-0000-0000-0000-00000000000a", 0},
                            {"GPU-00000000-0000-0000-0000-00000000000b", 1},
                            {"GPU-00000000-0000-0000-0000-00000000000c", 2},
                            {"MIG-00000000-0000-0000-0000-0000000000c1", 2},
                            {"MIG-00000000-0000-0000-0000-0000000000c2", 2}};
static struct gpu* watched;

struct event {
  struct gpu* gpu;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu** gpu) {
  *gpu = &gpus[index];
  return index < 3 ? 0 : 2;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, struct gpu** gpu) {
  for (int i = 0; i < 5; ++i) {
    *gpu = &gpus[i];
    if (strcmp(uuid, gpus[i].uuid) == 0) return 0;
  }
  return 6;
}
int nvmlDeviceGetUUID(struct gpu* gpu, char* text, unsigned length) {
  snprintf(text, length, "%s", gpu->uuid);
  return 0;
}
int nvmlDeviceGetMigMode(struct gpu* gpu, unsigned* current, unsigned* pending) {
  *current = *pending = gpu->index == 2;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(struct gpu* gpu, unsigned* count) {
  *count = 7;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(struct gpu* gpu, unsigned index, struct gpu** mig) {
  *mig = &gpus[3 + index];
  return index < 2 ? 0 : 6;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct gpu* mig, struct gpu** gpu) {
  *gpu = &gpus[2];
  return 0;
}
int nvmlDeviceGetTemperature(struct gpu* gpu, int kind, unsigned* degrees) {
  *degrees = 40;
  return 0;
}
int nvmlEventSetCreate(void** set) {
  *set = &watched;
  return 0;
}
int nvmlDeviceRegisterEvents(struct gpu* gpu, unsigned long long types, void* set) {
  watched = gpu;
  return types == 8 ? 0 : 2;
}
int nvmlEventSetWait_v2(void* set, struct event* event, unsigned milliseconds) {
  char path[256];
  snprintf(path, sizeof path, "%s/xid-%d", getenv("FAKE_NVML"), watched->index);
  for (unsigned i = 0; i < milliseconds / 20; ++i) {
    FILE* file = fopen(path, "r");
    if (file) {
      event->gpu = watched;
      event->type = 8;
      const int read = fscanf(file, "%llu", &event->data);
      fclose(file);
      if (read == 1) return unlink(path); /* else it is still being written */
    }
    usleep(20000);
  }
  return 10;
}
