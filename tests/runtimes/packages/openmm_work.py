"""OpenMM as it comes: forces, energies and a few steps of each kind of force are held against its Reference platform.
Its kernels are CUDA C++ that NVRTC compiles."""
import numpy as np
import openmm as mm  # type: ignore
import pytest

COUNT, BOX = 300, 3.0


def _positions() -> np.ndarray:
    """Of a grid, somewhat shaken."""
    side = int(np.ceil(COUNT ** (1 / 3)))
    grid = np.array([(i, j, k) for i in range(side) for j in range(side) for k in range(side)])[:COUNT]
    return grid * BOX / side + 0.05 + np.random.default_rng(1).random((COUNT, 3)) * 0.05


def _system(periodic: bool, *forces: mm.Force) -> mm.System:
    system = mm.System()
    for _ in range(COUNT):
        system.addParticle(18.0)
    if periodic:
        system.setDefaultPeriodicBoxVectors((BOX, 0, 0), (0, BOX, 0), (0, 0, BOX))
    for force in forces:
        system.addForce(force)
    return system


def _nonbonded(method) -> mm.System:
    force = mm.NonbondedForce()
    force.setNonbondedMethod(method)
    force.setCutoffDistance(1.0)
    for i in range(COUNT):
        force.addParticle((-1) ** i * 0.5, 0.3, 0.5)
    return _system(True, force)


def _custom_nonbonded() -> mm.System:
    force = mm.CustomNonbondedForce("eps*(sigma/r)^12*sin(r)+exp(-r)*a1*a2; eps=sqrt(e1*e2); sigma=0.5*(s1+s2)")
    for name in ("e", "s", "a"):
        force.addPerParticleParameter(name)
    force.setNonbondedMethod(force.CutoffPeriodic)
    force.setCutoffDistance(0.9)
    for i in range(COUNT):
        force.addParticle([0.4, 0.25, (-1) ** i])
    return _system(True, force)


def _implicit_solvent() -> mm.System:
    solvent, charges = mm.GBSAOBCForce(), mm.NonbondedForce()
    for i in range(COUNT):
        solvent.addParticle((-1) ** i * 0.3, 0.15, 0.8)
        charges.addParticle((-1) ** i * 0.3, 0.2, 0.2)
    return _system(False, solvent, charges)


def _bonded() -> mm.System:
    bonds, angles, torsions = mm.HarmonicBondForce(), mm.HarmonicAngleForce(), mm.PeriodicTorsionForce()
    for i in range(COUNT - 3):
        bonds.addBond(i, i + 1, 0.3, 1000.0)
        angles.addAngle(i, i + 1, i + 2, 1.9, 50.0)
        torsions.addTorsion(i, i + 1, i + 2, i + 3, 2, 0.5, 3.0)
    return _system(True, bonds, angles, torsions)


def _custom_solvent() -> mm.System:
    force = mm.CustomGBForce()
    force.addPerParticleParameter("q")
    force.addPerParticleParameter("rad")
    force.addComputedValue("I", "step(r-rad2)*0.5/(r*r+0.1)*rad2", force.ParticlePairNoExclusions)
    force.addComputedValue("B", "1/(1/rad-tanh(I))", force.SingleParticle)
    force.addEnergyTerm("-69*q*q/B", force.SingleParticle)
    force.addEnergyTerm("-138*q1*q2/sqrt(r^2+B1*B2*exp(-r^2/(4*B1*B2)))", force.ParticlePairNoExclusions)
    for i in range(COUNT):
        force.addParticle([(-1) ** i * 0.2, 0.15])
    return _system(False, force)


def _triples() -> mm.System:
    force = mm.CustomManyParticleForce(
        3, "C*(1+3*cos(t1)*cos(t2)*cos(t3))/(r12*r13*r23)^3; t1=angle(p1,p2,p3); t2=angle(p2,p3,p1); "
           "t3=angle(p3,p1,p2); r12=distance(p1,p2); r13=distance(p1,p3); r23=distance(p2,p3)")
    force.addGlobalParameter("C", 1e-4)
    force.setNonbondedMethod(force.CutoffPeriodic)
    force.setCutoffDistance(0.6)
    for _ in range(COUNT):
        force.addParticle([])
    return _system(True, force)


SYSTEMS = {
    "cutoff": lambda: _nonbonded(mm.NonbondedForce.CutoffPeriodic),
    "ewald": lambda: _nonbonded(mm.NonbondedForce.Ewald),
    "pme": lambda: _nonbonded(mm.NonbondedForce.PME),
    "custom-nonbonded": _custom_nonbonded,
    "implicit-solvent": _implicit_solvent,
    "bonded": _bonded,
    "custom-solvent": _custom_solvent,
    "triples": _triples,
}


def _found(system: mm.System, platform: str, properties: dict[str, str]) -> tuple[float, np.ndarray, np.ndarray]:
    """Energy and forces, and where all are after five steps."""
    integrator = mm.VerletIntegrator(0.001)
    context = mm.Context(system, integrator, mm.Platform.getPlatform(platform), properties)
    context.setPositions(_positions())
    state = context.getState(getForces=True, getEnergy=True)
    integrator.step(5)
    after = context.getState(getPositions=True).getPositions(asNumpy=True)
    return (state.getPotentialEnergy()._value, np.array(state.getForces(asNumpy=True)._value), np.array(after._value))


@pytest.mark.parametrize("precision", ["single", "mixed", "double"])
@pytest.mark.parametrize("kind", SYSTEMS)
def test_forces_are_those_of_the_reference_platform(kind, precision):
    energy, forces, after = _found(SYSTEMS[kind](), "Reference", {})
    its_energy, its_forces, its_after = _found(SYSTEMS[kind](), "CUDA", {"Precision": precision})
    assert its_energy == pytest.approx(energy, rel=1e-5)
    assert np.max(np.abs(forces - its_forces)) < 1e-4 * np.max(np.abs(forces))
    assert np.max(np.abs(after - its_after)) < 1e-5
