"""IREE as it comes: MLIR that it compiles to PTX, held against NumPy; in streams and in graphs."""
import pathlib
import subprocess
import sys

import iree.compiler  # type: ignore
import iree.runtime  # type: ignore
import numpy
import pytest

RANDOM = numpy.random.default_rng(7)


def tensor(shape, kind="f32"):
    return f"tensor<{'x'.join(map(str, shape))}x{kind}>"


def compiled(results, parameters, body):
    """A function of tensors; `body` has %out, filled with zeros, and gives %result."""
    out = tensor(results)
    arguments = ", ".join(f"%{name}: {kind}" for name, kind in parameters.items())
    source = f"""func.func @main({arguments}) -> {out} {{
      %zero = arith.constant 0.0 : f32
      %empty = tensor.empty() : {out}
      %out = linalg.fill ins(%zero : f32) outs(%empty : {out}) -> {out}
      {body}
      return %result : {out} }}"""
    return iree.compiler.compile_str(source, target_backends=["cuda"], extra_args=["--iree-cuda-target=sm_80"])


@pytest.fixture(scope="module")
def config():
    return iree.runtime.Config("cuda")


def same(config, module, arguments, wanted, rtol=1e-4):
    context = iree.runtime.SystemContext(config=config)
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, module))
    result = context.modules.module.main(*arguments)
    numpy.testing.assert_allclose(result.to_host(), wanted, rtol=rtol, atol=1e-3)


def random(*shape):
    return RANDOM.standard_normal(shape).astype(numpy.float32)


def test_products_of_matrices(config):
    a, b = random(64, 48), random(48, 80)
    kinds = tensor((64, 48)), tensor((48, 80))
    module = compiled((64, 80), {"a": kinds[0], "b": kinds[1]}, f"""%result = linalg.matmul
      ins(%a, %b : {kinds[0]}, {kinds[1]}) outs(%out : {tensor((64, 80))}) -> {tensor((64, 80))}""")
    same(config, module, (a, b), a @ b)


def test_a_command_buffer_is_a_graph(tmp_path):
    """Graphs are an option of the command alone."""
    a, b = random(64, 48), random(48, 80)
    kinds, out = (tensor(a.shape), tensor(b.shape)), tensor((64, 80))
    module = compiled((64, 80), {"a": kinds[0], "b": kinds[1]}, f"""%product = linalg.matmul
      ins(%a, %b : {kinds[0]}, {kinds[1]}) outs(%out : {out}) -> {out}
      %result = linalg.softmax dimension(1) ins(%product : {out}) outs(%empty : {out}) -> {out}""")
    (tmp_path / "main.vmfb").write_bytes(module)
    numpy.save(tmp_path / "a.npy", a)
    numpy.save(tmp_path / "b.npy", b)
    command = pathlib.Path(sys.executable).parent / "iree-run-module"
    subprocess.run([command, "--device=cuda", "--cuda_use_streams=false",
                    "--module=main.vmfb", "--function=main", "--input=@a.npy", "--input=@b.npy", "--output=@out.npy"],
                   cwd=tmp_path, check=True, timeout=120)
    powers = numpy.exp(a @ b - (a @ b).max(1, keepdims=True))
    numpy.testing.assert_allclose(numpy.load(tmp_path / "out.npy"), powers / powers.sum(1, keepdims=True), atol=1e-3)


def test_products_of_halves_on_tensor_cores(config):
    a, b = random(64, 64).astype(numpy.float16), random(64, 64).astype(numpy.float16)
    kind, out = tensor((64, 64), "f16"), tensor((64, 64))
    module = compiled((64, 64), {"a": kind, "b": kind},
                      f"%result = linalg.matmul ins(%a, %b : {kind}, {kind}) outs(%out : {out}) -> {out}")
    same(config, module, (a, b), a.astype(numpy.float32) @ b.astype(numpy.float32), 1e-2)


def test_softmax(config):
    a, kind = random(32, 1000), tensor((32, 1000))
    module = compiled((32, 1000), {"a": kind},
                      f"%result = linalg.softmax dimension(1) ins(%a : {kind}) outs(%empty : {kind}) -> {kind}")
    powers = numpy.exp(a - a.max(1, keepdims=True))
    same(config, module, (a,), powers / powers.sum(1, keepdims=True))


def test_sums_of_rows(config):
    a = random(100, 1000)
    module = compiled((100,), {"a": tensor((100, 1000))}, f"""%result = linalg.generic {{
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}} ins(%a : {tensor((100, 1000))}) outs(%out : {tensor((100,))}) {{
      ^bb0(%one: f32, %sum: f32):
        %next = arith.addf %one, %sum : f32
        linalg.yield %next : f32 }} -> {tensor((100,))}""")
    same(config, module, (a,), a.sum(1))


def test_convolutions(config):
    image, weights = random(1, 18, 18, 8), random(3, 3, 8, 16)
    kinds, out = (tensor(image.shape), tensor(weights.shape)), tensor((1, 16, 16, 16))
    module = compiled((1, 16, 16, 16), {"a": kinds[0], "k": kinds[1]},
                      f"%result = linalg.conv_2d_nhwc_hwcf ins(%a, %k : {kinds[0]}, {kinds[1]}) "
                      f"outs(%out : {out}) -> {out}")
    wanted = sum(numpy.einsum("hwc,co->hwo", image[0, p:p + 16, q:q + 16], weights[p, q])
                 for p in range(3) for q in range(3))
    same(config, module, (image, weights), wanted[None])
