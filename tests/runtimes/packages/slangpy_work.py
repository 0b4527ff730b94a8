"""SlangPy as it comes: Slang that it compiles by NVRTC, in buffers and textures; held against NumPy."""
import numpy
import pytest
import slangpy  # type: ignore

SOURCE = """
float twice_and(float a, float b) { return a * 2 + b; }

[shader("compute")][numthreads(64, 1, 1)]
void roots(uint3 thread: SV_DispatchThreadID, uniform RWStructuredBuffer<float> to, uniform uint count,
           uniform float factor) {
    if (thread.x < count) to[thread.x] = sqrt(float(thread.x)) * factor;
}

groupshared float shared_words[64];

[shader("compute")][numthreads(64, 1, 1)]
void sums(uint3 thread: SV_DispatchThreadID, uint within: SV_GroupIndex, uint3 group: SV_GroupID,
          uniform RWStructuredBuffer<float> to, uniform RWStructuredBuffer<float> from) {
    shared_words[within] = from[thread.x];
    GroupMemoryBarrierWithGroupSync();
    for (uint step = 32; step > 0; step >>= 1) {
        if (within < step) shared_words[within] += shared_words[within + step];
        GroupMemoryBarrierWithGroupSync();
    }
    if (within == 0) to[group.x] = shared_words[0];
}
"""
COUNT, GROUP = 1024, 64


@pytest.fixture(name="device", scope="module")
def _device(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slang")
    (folder / "work.slang").write_text(SOURCE)
    return slangpy.create_device(type=slangpy.DeviceType.cuda, include_paths=[folder])


def _buffer(device, count):
    usage = slangpy.BufferUsage.unordered_access | slangpy.BufferUsage.shader_resource
    return device.create_buffer(element_count=count, struct_size=4, usage=usage)


def _kernel(device, name):
    return device.create_compute_kernel(device.load_program("work.slang", [name]))


def test_kernels_with_buffers_and_shared_memory(device):
    words, sums = _buffer(device, COUNT), _buffer(device, COUNT // GROUP)
    _kernel(device, "roots").dispatch(thread_count=[COUNT, 1, 1], to=words, count=COUNT, factor=3.0)
    got = words.to_numpy().view(numpy.float32)
    numpy.testing.assert_allclose(got, 3 * numpy.sqrt(numpy.arange(COUNT, dtype=numpy.float32)), rtol=1e-5)
    _kernel(device, "sums").dispatch(thread_count=[COUNT, 1, 1], to=sums, **{"from": words})
    numpy.testing.assert_allclose(sums.to_numpy().view(numpy.float32), got.reshape(-1, GROUP).sum(1), rtol=1e-5)


def test_functions_of_arrays(device):
    module = slangpy.Module.load_from_file(device, "work.slang")
    a, b = numpy.random.default_rng(1).random((2, 1000), dtype=numpy.float32)
    numpy.testing.assert_allclose(module.twice_and(a, b, _result="numpy"), a * 2 + b, rtol=1e-6)


def test_textures(device):
    texels = numpy.arange(512, dtype=numpy.float32).reshape(8, 16, 4)
    texture = device.create_texture(format=slangpy.Format.rgba32_float, width=16, height=8, data=texels,
                                    usage=slangpy.TextureUsage.shader_resource)
    numpy.testing.assert_array_equal(texture.to_numpy(), texels)
