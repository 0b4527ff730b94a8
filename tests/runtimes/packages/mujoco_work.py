"""MuJoCo Warp as it comes, whose collisions are one kernel of 25,000 lines of PTX: held against MuJoCo on the CPU."""
import mujoco  # type: ignore
import mujoco_warp  # type: ignore
import numpy
import pytest
import warp  # type: ignore

WORLDS, STEPS = 4, 60
MODEL = """<mujoco><option timestep="0.004"/><worldbody><geom type="plane" size="5 5 .1"/>
<body pos="0 0 1"><freejoint/><geom type="capsule" size=".07 .2"/>
<body pos="0 0 -.35"><joint type="hinge" axis="0 1 0" range="-60 60" limited="true" damping="1"/>
<geom type="capsule" size=".05 .15"/>
<body pos="0 0 -.3"><joint name="ankle" type="hinge" axis="0 1 0" damping="1"/><geom type="sphere" size=".08"/></body>
</body></body>
<body pos=".5 0 .6"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
<body pos=".5 .05 .9"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
</worldbody><actuator><motor joint="ankle" gear="5"/></actuator></mujoco>"""


@pytest.fixture(name="worlds")
def _worlds():
    """The model on the CPU, and several times on the virtual GPU."""
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    data.ctrl[:] = 0.3
    mujoco.mj_forward(model, data)
    return model, data, mujoco_warp.put_model(model), mujoco_warp.put_data(model, data, nworld=WORLDS)


def test_it_is_the_virtual_gpu():
    assert warp.get_device().is_cuda


def test_bodies_fall_and_touch_as_on_the_cpu(worlds):
    model, data, on_gpu, states = worlds
    touched = 0
    for _ in range(STEPS):
        mujoco_warp.step(on_gpu, states)
        mujoco.mj_step(model, data)
        touched = max(touched, data.ncon)
    assert touched > 0, "nothing touches anything, so this shows little"
    positions = states.qpos.numpy()
    numpy.testing.assert_allclose(positions, numpy.broadcast_to(data.qpos, positions.shape), atol=1e-4)


def test_a_step_is_a_graph(worlds):
    model, data, on_gpu, states = worlds
    mujoco_warp.step(on_gpu, states)  # its kernels are loaded
    with warp.ScopedCapture() as captured:
        mujoco_warp.step(on_gpu, states)
    for _ in range(STEPS):
        warp.capture_launch(captured.graph)
    for _ in range(STEPS + 1):
        mujoco.mj_step(model, data)
    numpy.testing.assert_allclose(states.qpos.numpy()[WORLDS - 1], data.qpos, atol=1e-4)
