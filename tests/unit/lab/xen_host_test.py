"""Which triple faults in Xen's log are the emulated processor's own."""
from lab.xen_host import lost_domains

DUMP = """(XEN) d{domain}v0 Triple fault - invoking HVM shutdown action 1
(XEN) RIP:    {rip}
(XEN) cr3: 0000000004ae2000   cr2: {cr2}
(XEN) fsb: 000000000ab643c0   gsb: ffff88800b800000   gss: 0000000000000000
"""
OF_XEN = DUMP.format(domain=1, rip="e008:[<ffff82d040215abd>]", cr2="ffff82d040215abd")
AT_A_GATE = DUMP.format(domain=2, rip="0010:[<ffffffff81d0b2b7>]", cr2="fffffe0000000080")
OF_THE_DOMAIN = DUMP.format(domain=3, rip="0010:[<ffffffffc0001234>]", cr2="ffffc90000725000")


def test_domains_that_the_emulated_processor_has_lost_are_counted():
    assert lost_domains("(XEN) Freed 656kB init memory\n") == 0
    assert lost_domains(OF_XEN + AT_A_GATE) == 2


def test_a_domain_that_has_itself_to_blame_is_not():
    assert lost_domains(OF_THE_DOMAIN) == 0
    assert lost_domains(OF_THE_DOMAIN + OF_XEN) == 1
    assert lost_domains("(XEN) d3v0 Triple fault - invoking HVM shutdown action 1\n") == 0
