// Arrays, textures and surfaces through the device's interface: what is made, what is refused, and what counts.
#include "backend/device/soft/array.h"

#include "tests/unit/soft/host_fixture.h"

namespace bandsaw::soft {
namespace {

vgpu_array asked(uint64_t width, uint64_t height, uint64_t depth, uint32_t flags = 0, uint32_t levels = 0) {
  vgpu_array array{};
  array.width = width;
  array.height = height;
  array.depth = depth;
  array.format = CU_AD_FORMAT_FLOAT;
  array.channels = 1;
  array.flags = flags;
  array.levels = levels;
  return array;
}

CUresult laid_out(const vgpu_array& array) {
  ArrayLayout layout;
  std::string why;
  const CUresult result = lay_out(array, &layout, &why);
  EXPECT_EQ(result == CUDA_SUCCESS, why.empty()) << why;
  return result;
}

TEST(ArrayLayout, RefusesWhatNoArrayIs) {
  constexpr uint32_t kLayered = CUDA_ARRAY3D_LAYERED, kCube = CUDA_ARRAY3D_CUBEMAP;
  for (const vgpu_array& good : {asked(1, 0, 0), asked(131072, 65536, 0), asked(5, 6, 7), asked(8, 0, 3, kLayered),
                                 asked(8, 8, 6, kCube), asked(8, 8, 18, kCube | kLayered), asked(32, 8, 0, 0, 6)}) {
    EXPECT_EQ(laid_out(good), CUDA_SUCCESS) << good.width;
  }
  const vgpu_array bad[] = {asked(0, 0, 0),
                            asked(8, 0, 3),
                            asked(131073, 1, 0),
                            asked(8, 65537, 0),
                            asked(8, 8, 16385),
                            asked(8, 8, 0, kLayered),
                            asked(8, 8, 2049, kLayered),
                            asked(8, 9, 6, kCube),
                            asked(8, 8, 7, kCube),
                            asked(8, 8, 8, kCube | kLayered),
                            asked(32, 8, 0, 0, 7),
                            asked(~0ull, 1, 0),
                            asked(~0ull, ~0ull, ~0ull),
                            asked(8, 8, 8, CUDA_ARRAY3D_TEXTURE_GATHER)};
  for (const vgpu_array& array : bad) EXPECT_EQ(laid_out(array), CUDA_ERROR_INVALID_VALUE) << array.width;
  EXPECT_EQ(laid_out(asked(8, 8, 0, CUDA_ARRAY3D_SPARSE)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(laid_out(asked(8, 8, 0, 1u << 30)), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(ArrayLayout, KnowsFormats) {
  TexelFormat format;
  EXPECT_EQ(texel_format(CU_AD_FORMAT_HALF, 4, &format), CUDA_SUCCESS);
  EXPECT_EQ(format.bytes(), 8u);
  EXPECT_EQ(texel_format(CU_AD_FORMAT_SNORM_INT16X2, 2, &format), CUDA_SUCCESS);
  EXPECT_TRUE(format.normalized && format.kind == TexelKind::kSigned && format.bytes() == 4);
  EXPECT_EQ(texel_format(CU_AD_FORMAT_UNORM_INT8X4, 4, &format), CUDA_SUCCESS);
  EXPECT_EQ(format.bytes(), 4u);
  EXPECT_EQ(texel_format(CU_AD_FORMAT_UNORM_INT8X4, 1, &format), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(texel_format(CU_AD_FORMAT_FLOAT, 3, &format), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(texel_format(CU_AD_FORMAT_BC1_UNORM, 4, &format), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(texel_format(CU_AD_FORMAT_NV12, 3, &format), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(texel_format(0, 1, &format), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(texel_format(~0u, 1, &format), CUDA_ERROR_INVALID_VALUE);
}

class ArrayTest : public HostFixture {
 protected:
  ArrayRef make(const vgpu_array& wanted) {
    ArrayRef array;
    vgpu_array is{};
    EXPECT_EQ(device->array_create(context, wanted, &array, &is), CUDA_SUCCESS);
    return array;
  }
  CUresult destroy(const ArrayRef& array) {
    return wait_for([&](Done done) { device->array_destroy(array, std::move(done)); });
  }
  CUresult texture(const vgpu_texture& wanted, const std::shared_ptr<Object>& object) {
    uint64_t value = 0;
    return device->texture_create(context, wanted, object, &made, &value);
  }
  TextureRef made;
};

TEST_F(ArrayTest, CountsUntilItIsDestroyed) {
  const int64_t before = host.charged;
  const ArrayRef array = make(asked(1024, 1024, 0));
  EXPECT_EQ(host.charged - before, 4 << 20);
  vgpu_texture wanted{};
  EXPECT_EQ(texture(wanted, array), CUDA_SUCCESS);
  EXPECT_EQ(destroy(array), CUDA_SUCCESS);
  EXPECT_LT(host.charged - before, 1 << 20);  // the table of textures
  EXPECT_EQ(destroy(array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(texture(wanted, array), CUDA_ERROR_INVALID_HANDLE);
  Copy copy;
  char byte[4] = {};
  copy.destination.array = array;
  copy.source.host = true;
  copy.source.address = reinterpret_cast<uint64_t>(byte);
  copy.width_bytes = 4;
  EXPECT_EQ(device->copy(legacy, copy, nullptr), CUDA_ERROR_INVALID_HANDLE);
  host.share = 8 << 20;
  ArrayRef none;
  vgpu_array is{};
  EXPECT_EQ(device->array_create(context, asked(4096, 4096, 0), &none, &is), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(ArrayTest, CopiesStayInside) {
  const ArrayRef array = make(asked(8, 4, 3, CUDA_ARRAY3D_LAYERED));
  char bytes[64] = {};
  const auto copy = [&](uint64_t x, uint64_t y, uint64_t z, uint64_t width, uint64_t height, uint64_t depth) {
    Copy made_copy;
    made_copy.destination.array = array;
    made_copy.destination.x_bytes = x;
    made_copy.destination.y = y;
    made_copy.destination.z = z;
    made_copy.source.host = true;
    made_copy.source.address = reinterpret_cast<uint64_t>(bytes);
    made_copy.source.pitch = width;
    made_copy.width_bytes = width;
    made_copy.height = height;
    made_copy.depth = depth;
    return device->copy(legacy, made_copy, nullptr);
  };
  EXPECT_EQ(copy(28, 3, 2, 4, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(copy(16, 2, 1, 8, 2, 2), CUDA_SUCCESS);
  EXPECT_EQ(copy(2, 0, 0, 4, 1, 1), CUDA_ERROR_INVALID_VALUE);  // half of a texel
  EXPECT_EQ(copy(0, 0, 0, 36, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy(~0ull & ~3ull, 0, 0, 8, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy(0, 4, 0, 4, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy(0, ~0ull, 0, 4, 2, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy(0, 0, 1, 4, 1, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
}

TEST_F(ArrayTest, TexturesAreCheckedWhenTheyAreMade) {
  const ArrayRef array = make(asked(8, 8, 0));
  vgpu_texture good{};
  good.resource.type = CU_RESOURCE_TYPE_ARRAY;
  EXPECT_EQ(texture(good, array), CUDA_SUCCESS);
  vgpu_texture bad = good;
  bad.sampler.address_mode[1] = 4;
  EXPECT_EQ(texture(bad, array), CUDA_ERROR_INVALID_VALUE);
  bad = good;
  bad.sampler.flags = 0x80;
  EXPECT_EQ(texture(bad, array), CUDA_ERROR_INVALID_VALUE);
  bad = good;
  bad.view.present = 1;
  bad.view.width = bad.view.height = 8;
  bad.view.format = CU_RES_VIEW_FORMAT_FLOAT_2X32;  // twice the size
  EXPECT_EQ(texture(bad, array), CUDA_ERROR_INVALID_VALUE);
  bad.view.format = CU_RES_VIEW_FORMAT_UNSIGNED_BC1;
  EXPECT_EQ(texture(bad, array), CUDA_ERROR_NOT_SUPPORTED);
  bad.view.format = CU_RES_VIEW_FORMAT_UINT_1X32;
  EXPECT_EQ(texture(bad, array), CUDA_SUCCESS);
  bad.sampler.filter_mode = CU_TR_FILTER_MODE_LINEAR;  // of whole numbers, which it leaves as they are
  EXPECT_EQ(texture(bad, array), CUDA_SUCCESS);
  bad.sampler.filter_mode = 2;
  EXPECT_EQ(texture(bad, array), CUDA_ERROR_INVALID_VALUE);
  bad = good;
  bad.view.present = 1;
  bad.view.width = bad.view.height = 8;
  EXPECT_EQ(texture(bad, array), CUDA_SUCCESS);
  bad.view.last_level = 1;
  EXPECT_EQ(texture(bad, array), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ArrayTest, ViewsHaveTheSizeOfTheirArray) {
  const ArrayRef plane = make(asked(8, 4, 0)), line = make(asked(8, 0, 0)), box = make(asked(8, 4, 2)),
                 layers = make(asked(8, 4, 3, CUDA_ARRAY3D_LAYERED));
  vgpu_texture wanted{};
  wanted.resource.type = CU_RESOURCE_TYPE_ARRAY;
  wanted.view.present = 1;
  const auto view = [&](const ArrayRef& array, uint64_t width, uint64_t height, uint64_t depth) {
    wanted.view.width = width;
    wanted.view.height = height;
    wanted.view.depth = depth;
    return texture(wanted, array);
  };
  EXPECT_EQ(view(plane, 8, 4, 0), CUDA_SUCCESS);
  EXPECT_EQ(view(plane, 4, 4, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(view(plane, 8, 2, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(view(plane, 8, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(view(plane, 8 + (1ull << 32), 4, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(view(line, 8, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(view(box, 8, 4, 2), CUDA_SUCCESS);
  EXPECT_EQ(view(box, 8, 4, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(view(layers, 8, 4, 3), CUDA_SUCCESS);
  EXPECT_EQ(view(layers, 8, 4, 0), CUDA_SUCCESS);
}

TEST_F(ArrayTest, LinearMemoryMustBeThePrograms) {
  vgpu_texture wanted{};
  wanted.resource.type = CU_RESOURCE_TYPE_LINEAR;
  wanted.resource.format = CU_AD_FORMAT_FLOAT;
  wanted.resource.channels = 1;
  wanted.resource.address = alloc(4096);
  wanted.resource.bytes = 4096;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_SUCCESS);
  wanted.resource.bytes = 4100;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_ERROR_INVALID_VALUE);
  wanted.resource.bytes = ~0ull;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_ERROR_INVALID_VALUE);
  wanted.resource.bytes = 3;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_ERROR_INVALID_VALUE);
  wanted.resource.bytes = 16;
  wanted.resource.address += 2;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_ERROR_INVALID_VALUE);
  wanted.resource.address = 0x1000;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_ERROR_INVALID_VALUE);
  wanted.resource.type = CU_RESOURCE_TYPE_PITCH2D;
  wanted.resource.address = alloc(4096);
  wanted.resource.width = 16;
  wanted.resource.height = 16;
  wanted.resource.pitch = 256;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_SUCCESS);
  wanted.resource.height = 17;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_ERROR_INVALID_VALUE);
  wanted.resource.height = 16;
  wanted.resource.pitch = 32;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_ERROR_INVALID_VALUE);
  wanted.resource.pitch = ~0ull & ~3ull;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_ERROR_INVALID_VALUE);
  wanted.resource.pitch = 256;
  wanted.resource.width = ~0ull / 4;
  EXPECT_EQ(texture(wanted, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ArrayTest, EveryArrayCanBeASurface) {
  SurfaceRef surface;
  uint64_t value = 0;
  EXPECT_EQ(device->surface_create(context, make(asked(8, 8, 0)), &surface, &value), CUDA_SUCCESS);
  EXPECT_EQ(device->surface_create(context, make(asked(8, 8, 0, CUDA_ARRAY3D_SURFACE_LDST)), &surface, &value),
            CUDA_SUCCESS);
  EXPECT_NE(value, 0u);
  EXPECT_EQ(device->surface_destroy(surface), CUDA_SUCCESS);
}

TEST_F(ArrayTest, LevelsGoWithTheirArray) {
  MipmapRef mipmap;
  ASSERT_EQ(device->mipmap_create(context, asked(16, 4, 0, 0, 5), &mipmap), CUDA_SUCCESS);
  ArrayRef level;
  vgpu_array is{};
  ASSERT_EQ(device->mipmap_level(mipmap, 3, &level, &is), CUDA_SUCCESS);
  EXPECT_TRUE(is.width == 2 && is.height == 1 && is.depth == 0);
  EXPECT_EQ(device->mipmap_level(mipmap, 5, &level, &is), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(destroy(level), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(wait_for([&](Done done) { device->mipmap_destroy(mipmap, std::move(done)); }), CUDA_SUCCESS);
  vgpu_texture wanted{};
  EXPECT_EQ(texture(wanted, level), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace bandsaw::soft
