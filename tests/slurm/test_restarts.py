"""slurmd or slurmctld killed and started again while a job's virtual GPU is being made: the job has it, or fails and
says so; and nothing is left, of the virtual GPU and of the job."""
import contextlib
import subprocess
import time

import pytest

STATE_SECONDS = 7  # slurmctld writes down every 5 s which jobs there are
ENDS_SECONDS = 120
JOB = ["srun", "--nodelist=n0", "--gres=vgpu:1", "--vgpu=memory=512M"]
pytestmark = pytest.mark.full  # Slurm looks every so many seconds what has become of its jobs and nodes


@contextlib.contextmanager
def _being_made(cluster, program):
    """A job whose virtual GPU is being made on n0 meanwhile: vgpud answers afterwards."""
    cluster.await_node("n0", "idle")
    with cluster.frozen("vgpud-n0"):
        job = cluster.start(*JOB, program)
        cluster.await_begin("n0")
        yield job


def _await_end(cluster, job: subprocess.Popen, number_again: bool = False) -> None:
    """The job has run its program, or failed and said so; nothing is left; and the node serves the next. With
    `number_again`, that one may have the number of a job that slurmctld has forgotten and slurmd has not; then it is
    told, and the one after it is served."""
    output = job.communicate(timeout=ENDS_SECONDS)[0]
    print(output)
    if job.returncode == 0:
        assert output.splitlines()[-1] == "ok"
    else:
        assert "error:" in output
    cluster.await_empty(ENDS_SECONDS)
    cluster.await_node("n0", "idle", ENDS_SECONDS)
    assert cluster.run("ls", "/run/bandsaw-slurm-n0", user="root").split() == []
    following = cluster.try_(*JOB, "echo", "next").stdout
    if number_again and "its prolog did not run" in following:
        cluster.await_empty(ENDS_SECONDS)
        following = cluster.try_(*JOB, "echo", "next").stdout
    assert following.splitlines()[-1] == "next", following + cluster.evidence()


def test_slurmd_killed_and_back_at_once(cluster, program):
    with _being_made(cluster, program) as job:
        cluster.kill("slurmd-n0")
        cluster.start_slurmd("n0")
    _await_end(cluster, job)


def test_slurmd_back_after_the_virtual_gpu_was_made(cluster, program):
    with _being_made(cluster, program) as job:
        cluster.kill("slurmd-n0")
    cluster.await_vgpu()
    cluster.start_slurmd("n0")
    _await_end(cluster, job)


def test_slurmctld_that_has_written_the_job_down(cluster, program):
    with _being_made(cluster, program) as job:
        time.sleep(STATE_SECONDS)
        cluster.kill("slurmctld")
        cluster.start_controller()
    _await_end(cluster, job)


def test_slurmctld_that_has_forgotten_the_job(cluster, program):
    """It is killed before it has written down that there is one."""
    time.sleep(STATE_SECONDS)
    with _being_made(cluster, program) as job:
        cluster.kill("slurmctld")
    cluster.await_vgpu()
    cluster.start_controller()
    _await_end(cluster, job, number_again=True)


def test_both(cluster, program):
    time.sleep(STATE_SECONDS)  # what is forgotten is this job
    with _being_made(cluster, program) as job:
        cluster.kill("slurmctld")
        cluster.kill("slurmd-n0")
    cluster.await_vgpu()
    cluster.start_controller()
    cluster.start_slurmd("n0")
    _await_end(cluster, job, number_again=True)
