// What counts against the memory share where the driver manages memory by itself, with a driver of our own whose pools
// grow in steps and give back when they are trimmed.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "backend/device/cuda/code_bytes.h"
#include "backend/device/cuda/pool.h"

namespace bandsaw::cuda {
namespace {

constexpr uint64_t kMiB = 1 << 20, kStep = 32 * kMiB;

struct FakeDriver {
  std::map<CUdeviceptr, uint64_t> live;
  std::vector<uint64_t> pending;  // freed in stream order, not yet reached
  uint64_t reserved = 0, graphs = 0, asked = 0;
  uint64_t used() const {
    uint64_t sum = 0;
    for (const auto& [address, bytes] : live) sum += bytes;
    for (const uint64_t bytes : pending) sum += bytes;
    return sum;
  }
};
FakeDriver fake;

std::shared_ptr<const Driver> fake_driver() {
  fake = {};
  auto driver = std::make_shared<Driver>();
  driver->cuMemPoolGetAttribute = [](CUmemoryPool, CUmemPool_attribute which, void* value) {
    *static_cast<cuuint64_t*>(value) = which == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? fake.reserved : fake.used();
    return CUDA_SUCCESS;
  };
  driver->cuMemAllocFromPoolAsync = [](CUdeviceptr* address, size_t bytes, CUmemoryPool, CUstream) {
    ++fake.asked;
    while (fake.reserved < fake.used() + bytes) fake.reserved += kStep;
    *address = fake.asked << 40;
    fake.live[*address] = bytes;
    return CUDA_SUCCESS;
  };
  driver->cuMemFreeAsync = [](CUdeviceptr address, CUstream) {
    fake.pending.push_back(fake.live.at(address));
    fake.live.erase(address);
    return CUDA_SUCCESS;
  };
  driver->cuMemPoolTrimTo = [](CUmemoryPool, size_t keep) {
    while (fake.reserved >= kStep && fake.reserved - kStep >= std::max<uint64_t>(keep, fake.used())) {
      fake.reserved -= kStep;
    }
    return CUDA_SUCCESS;
  };
  driver->cuMemPoolDestroy = [](CUmemoryPool) { return CUDA_SUCCESS; };
  driver->cuDeviceGetGraphMemAttribute = [](CUdevice, CUgraphMem_attribute, void* value) {
    *static_cast<cuuint64_t*>(value) = fake.graphs;
    return CUDA_SUCCESS;
  };
  driver->cuDeviceGraphMemTrim = [](CUdevice) { return fake.graphs = 0, CUDA_SUCCESS; };
  return driver;
}

struct FakeHost final : DeviceHost {
  void run_callback(const HostCallback&, CUresult, Done) override {}
  void poisoned(CUresult) override {}
  void print(std::string_view) override {}
  bool charge_memory(int64_t bytes) override {
    if (bytes > 0 && bytes > share - charged) return false;
    return charged += bytes, true;
  }
  void charge_time(int, uint64_t, uint64_t) override {}
  void* visible_host(uint64_t, uint64_t) override { return nullptr; }
  int64_t charged = 0, share = 0;
};

class SharesTest : public ::testing::Test {
 protected:
  uint64_t reach_frees() { return fake.pending.clear(), fake.used(); }

  FakeHost host_;
  const std::shared_ptr<const Driver> driver_ = fake_driver();
  CudaPool pool_{driver_, &host_, nullptr, true};
  uint64_t address_ = 0;
};

TEST_F(SharesTest, PoolsCountWhatTheyReserve) {
  host_.share = 100 * kMiB;
  EXPECT_EQ(pool_.allocate(kMiB, nullptr, &address_), CUDA_SUCCESS);
  EXPECT_EQ(host_.charged, int64_t{kStep});
  EXPECT_TRUE(pool_.holds_memory());
  EXPECT_EQ(pool_.allocate(30 * kMiB, nullptr, &address_), CUDA_SUCCESS);
  EXPECT_EQ(host_.charged, int64_t{kStep});
  EXPECT_EQ(pool_.allocate(40 * kMiB, nullptr, &address_), CUDA_SUCCESS);
  EXPECT_EQ(host_.charged, int64_t{3 * kStep});
  driver_->cuMemFreeAsync(address_, nullptr);
  EXPECT_EQ(pool_.trim(0), CUDA_SUCCESS);
  EXPECT_EQ(host_.charged, int64_t{3 * kStep}) << "the stream is not there yet";
  reach_frees();
  EXPECT_EQ(pool_.trim(0), CUDA_SUCCESS);
  EXPECT_EQ(host_.charged, int64_t{kStep});
}

TEST_F(SharesTest, ThePoolIsNotAskedForWhatTheShareHasNot) {
  host_.share = 20 * kMiB;
  EXPECT_EQ(pool_.allocate(21 * kMiB, nullptr, &address_), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pool_.allocate(~uint64_t{0}, nullptr, &address_), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pool_.allocate(uint64_t{1} << 63, nullptr, &address_), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake.asked, 0u);
  EXPECT_EQ(host_.charged, 0);
}

TEST_F(SharesTest, APoolThatGrowsBeyondTheShareShrinksAgain) {
  host_.share = 40 * kMiB;
  EXPECT_EQ(pool_.allocate(kMiB, nullptr, &address_), CUDA_SUCCESS);
  const uint64_t kept = address_;
  EXPECT_EQ(pool_.allocate(35 * kMiB, nullptr, &address_), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake.live.size(), 1u);
  EXPECT_TRUE(fake.live.contains(kept));
  EXPECT_LE(host_.charged, host_.share);
  EXPECT_FALSE(pool_.settle()) << "the stream has not yet reached the free";
  reach_frees();
  EXPECT_TRUE(pool_.settle());
  EXPECT_EQ(fake.reserved, kStep);
  EXPECT_EQ(host_.charged, int64_t{kStep});
  EXPECT_EQ(pool_.allocate(20 * kMiB, nullptr, &address_), CUDA_SUCCESS);
}

TEST_F(SharesTest, GraphsCountWhatTheyReserve) {
  GraphMemory graphs(driver_, &host_, 0);
  host_.share = 100 * kMiB;
  fake.graphs = 60 * kMiB;
  EXPECT_TRUE(graphs.settle());
  EXPECT_EQ(host_.charged, int64_t{60 * kMiB});
  fake.graphs = 120 * kMiB;
  EXPECT_FALSE(graphs.settle());
  EXPECT_EQ(host_.charged, int64_t{60 * kMiB});
  const uint64_t trims = graphs.trims();
  graphs.trim();
  EXPECT_NE(graphs.trims(), trims);
  EXPECT_EQ(host_.charged, 0);
}

// A CUDA ELF with sections of these names, flags and sizes; all of them without bytes in the file.
struct Section {
  std::string name;
  uint64_t flags, bytes;
};

std::vector<std::byte> make_elf(const std::vector<Section>& sections) {
  std::string names(1, '\0');
  std::vector<Elf64_Shdr> headers(1);
  for (const Section& section : sections) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<Elf64_Word>(names.size());
    header.sh_type = SHT_NOBITS;
    header.sh_flags = section.flags;
    header.sh_size = section.bytes;
    headers.push_back(header);
    names += section.name + '\0';
  }
  Elf64_Ehdr elf{};
  std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_ident[EI_DATA] = ELFDATA2LSB;
  elf.e_machine = 190;
  elf.e_flags = 90 << 8;
  elf.e_shoff = sizeof elf;
  elf.e_shentsize = sizeof(Elf64_Shdr);
  elf.e_shnum = static_cast<Elf64_Half>(headers.size() + 1);
  elf.e_shstrndx = static_cast<Elf64_Half>(headers.size());
  Elf64_Shdr strings{};
  strings.sh_type = SHT_STRTAB;
  strings.sh_offset = sizeof elf + (headers.size() + 1) * sizeof(Elf64_Shdr);
  strings.sh_size = names.size();
  headers.push_back(strings);
  std::vector<std::byte> image(strings.sh_offset + names.size());
  std::memcpy(image.data(), &elf, sizeof elf);
  std::memcpy(image.data() + sizeof elf, headers.data(), headers.size() * sizeof(Elf64_Shdr));
  std::memcpy(image.data() + strings.sh_offset, names.data(), names.size());
  return image;
}

TEST(CodeBytes, CountsWhatLiesInTheMemoryOfTheGpu) {
  const auto image = make_elf({{".text.kernel", SHF_ALLOC | SHF_EXECINSTR, 1000},
                               {".nv.global", SHF_ALLOC | SHF_WRITE, uint64_t{10} << 30},
                               {".nv.constant3", SHF_ALLOC, 64},
                               {".nv.shared.kernel", SHF_ALLOC | SHF_WRITE, 48 << 10},
                               {".debug_line", 0, 5000}});
  EXPECT_EQ(code_bytes(image, 90), (uint64_t{10} << 30) + 1064);
}

TEST(CodeBytes, SurvivesWildSizes) {
  EXPECT_EQ(code_bytes(make_elf({{".text.a", SHF_ALLOC, ~uint64_t{0}}, {".text.b", SHF_ALLOC, ~uint64_t{0}}}), 90),
            static_cast<uint64_t>(INT64_MAX));
  auto cut = make_elf({{".text.a", SHF_ALLOC, 10}});
  cut.resize(100);
  EXPECT_EQ(code_bytes(cut, 90), 100u);
  EXPECT_EQ(code_bytes({}, 90), 0u);
}

#ifdef BANDSAW_HAVE_IMAGE
TEST(CodeBytes, CountsVariablesOfPtx) {
  const std::string text =
      ".version 8.0\n.target sm_75\n.address_size 64\n"
      ".visible .global .align 4 .b8 large[1073741824];\n"
      ".const .f32 table[256];\n.extern .global .b8 elsewhere[4096];\n"
      ".global .attribute(.managed) .b8 managed[8192];\n.shared .b8 shared[1024];\n";
  EXPECT_EQ(code_bytes(std::as_bytes(std::span(text)), 90), text.size() + (1ull << 30) + 1024);
}
#endif

}  // namespace
}  // namespace bandsaw::cuda
