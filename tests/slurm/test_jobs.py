"""What a job has while it runs, who may use it, and what the books say afterwards."""
import re
import time

from lab.paths import BUILD

ONE = ["--gres=vgpu:1", "--vgpu=memory=512M,compute=30,latency-us=500"]


def test_a_job_has_a_virtual_gpu_of_its_own(cluster, program):
    assert cluster.run("srun", *ONE, program).strip() == "ok"


def test_it_is_as_the_job_asked(cluster):
    job = cluster.start("srun", *ONE, "sleep", "60")
    name, node = cluster.await_vgpu()
    view = cluster.view(node, name)
    assert (view["memory"], view["compute"], view["latency_us"]) == (512 << 20, 30, 500)
    assert view["owner"] == "20001"
    job.kill()


def test_several_on_a_node_and_one_on_each_of_several(cluster, program):
    text = cluster.run("srun", "--gres=vgpu:2", "--vgpu=memory=256M", "sh", "-c", f"echo $BANDSAW_VGPU; {program}")
    assert re.fullmatch(r"slurm-(\d+)-0,slurm-\1-1\nok\n", text.partition("resources\n")[2] or text)
    text = cluster.run("srun", "-N3", *ONE, "sh", "-c", f"{program}; echo $SLURMD_NODENAME")
    assert text.count("ok\n") == 3 and {"n0", "n1", "n2"} <= set(text.split())


def test_only_the_jobs_user_may_use_it(cluster, program):
    job = cluster.start("srun", *ONE, "sleep", "60")
    name, node = cluster.await_vgpu()
    words = ["env", f"BANDSAW_VGPU={name}", f"BANDSAW_RUN=/run/bandsaw/{node}",
             f"LD_LIBRARY_PATH={BUILD / 'guest-driver/libcuda'}", program]
    assert "this user may not use it" in cluster.try_(*words, user="bob").stdout
    assert cluster.try_(*words, user="alice").stdout.strip() == "ok"
    job.kill()


def test_memory_and_shares_decide_where_there_is_room(cluster):
    """Two of 60 % do not fit on one of three nodes: the fourth waits, and begins when one ends."""
    jobs = [cluster.start("srun", "--gres=vgpu:1", "--vgpu=memory=64M,compute=60", "sleep", "60") for _ in range(4)]
    cluster.await_vgpus(3)
    assert sorted(len(cluster.vgpus(node)) for node in cluster.nodes) == [1, 1, 1]
    waiting = cluster.run("squeue", "--noheader", "--states=PENDING", "--format=%r")
    assert waiting.split() == ["Resources"] or waiting.split() == ["Priority"]
    first = cluster.run("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()[0]
    cluster.run("scancel", first)
    cluster.await_jobs_started(3, beside=first)
    for job in jobs:
        job.kill()


def test_steps_use_what_their_job_has(cluster, program):
    script = f"srun {program}; srun --vgpu=memory=1G true; {program}"
    cluster.run("sbatch", "--wait", "--output=/home/alice/out", *ONE, "--wrap", script)
    text = cluster.path("/home/alice/out").read_text()
    assert text.count("ok\n") == 2 and "--vgpu differs from the job's" in text


def test_what_a_job_used_is_in_the_books(cluster, program):
    text = cluster.run("srun", "-N2", *ONE, "sh", "-c", f"{program}; echo job $SLURM_JOB_ID")
    job = text.split("job ")[-1].strip()

    def said() -> str:
        return cluster.run("sacct", "-X", "-n", "-P", f"--jobs={job}", "--format=State,AllocTRES,AdminComment")
    deadline = time.monotonic() + 40
    while said().count("launches=4") < 2 and time.monotonic() < deadline:
        time.sleep(0.5)
    text = said()
    assert text.startswith("COMPLETED")
    for word in ("gres/vgpu=2", f"gres/vgpumem={2 * 512 << 20}", "gres/vgpucompute=60", "gres/vgpucopy=2"):
        assert word in text
    assert len(re.findall(r"vgpu=slurm-\d+ node=n\d compute_s=\d+\.\d+ copy_s=\d+\.\d+ launches=4", text)) == 2
