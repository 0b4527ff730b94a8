"""However a job ends, its virtual GPU is given back; and no restart takes it away before."""
import time

import pytest

STATE_SECONDS = 7  # slurmctld writes down every 5 s which jobs there are; what it forgets it gives a second time
ONE = ["--gres=vgpu:1", "--vgpu=memory=512M"]


@pytest.fixture
def job(cluster):
    """A job on n0 that sleeps, and its number."""
    process = cluster.start("srun", "--nodelist=n0", *ONE, "sleep", "100")
    cluster.await_vgpu()
    yield int(cluster.run("squeue", "--noheader", "--format=%A").strip())
    process.kill()


def test_a_cancelled_job_gives_it_back(cluster, job):
    cluster.run("scancel", job)
    cluster.await_empty()


def test_a_job_out_of_time_gives_it_back(cluster, job):
    cluster.run("scontrol", "update", f"JobId={job}", "EndTime=now+1", user="root")
    cluster.await_empty(60)


def test_a_restarted_slurmd_keeps_it(cluster, job):
    cluster.kill("slurmd-n0")
    cluster.start_slurmd("n0")
    cluster.await_node("n0", "mixed")
    assert cluster.vgpus("n0") == [f"slurm-{job}"]
    cluster.run("scancel", job)
    cluster.await_empty()


def test_a_restarted_slurmctld_keeps_it(cluster, job):
    time.sleep(STATE_SECONDS)
    cluster.kill("slurmctld")
    cluster.start_controller()
    assert cluster.vgpus("n0") == [f"slurm-{job}"]
    cluster.run("scancel", job)
    cluster.await_empty()


def test_a_node_that_was_switched_off_has_none_when_it_is_back(cluster, job):
    """Its job is over for Slurm; vgpud's list of virtual GPUs outlived the node."""
    cluster.kill("slurmd-n0")
    cluster.kill_job(job)
    cluster.await_node("n0", "down")
    assert cluster.vgpus("n0") == [f"slurm-{job}"]
    cluster.start_slurmd("n0")
    cluster.await_empty()
    cluster.await_node("n0", "idle")


def test_a_restarted_vgpud_keeps_it(cluster, program):
    process = cluster.start("srun", "--nodelist=n0", *ONE, "sh", "-c", f"{program}; sleep 4; {program}")
    cluster.await_vgpu()
    cluster.kill("vgpud-n0")
    cluster.start_vgpud("n0")
    assert process.communicate(timeout=60)[0] == "ok\nok\n"


def test_a_job_is_told_that_vgpud_does_not_answer(cluster):
    cluster.kill("vgpud-n0")
    done = cluster.try_("srun", "--nodelist=n0", *ONE, "true")
    assert done.returncode != 0
    assert "vgpud does not answer on /run/bandsaw/n0/control.sock" in done.stdout
    cluster.start_vgpud("n0")
    cluster.await_node("n0", "idle")


def test_a_node_whose_vgpud_is_gone_is_drained_until_it_is_back(cluster):
    cluster.kill("vgpud-n0")
    cluster.await_node("n0", "drained")
    assert "vgpud does not answer" in cluster.run("scontrol", "show", "node", "n0")
    cluster.start_vgpud("n0")
    cluster.await_node("n0", "idle")
    assert cluster.run("srun", "--nodelist=n0", *ONE, "echo", "ok").splitlines()[-1] == "ok"
