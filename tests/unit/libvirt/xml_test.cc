#include <fmt/format.h>
#include <gtest/gtest.h>

#include "hypervisor/libvirt/domain.h"

namespace bandsaw::libvirt {
namespace {

const Attachment kWeb{"web0", "/run/bandsaw/web0/vfio.sock", {{"memory", "8G"}, {"compute", "30"}}};
const Attachment kDb{"db0", "/run/bandsaw/db0/vfio.sock"};
constexpr const char* kDomain = "<domain type='kvm'><name>d</name><memory>1048576</memory></domain>";

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(DomainXml, AddsDeviceSharedMemoryAndName) {
  const auto xml = add_to_xml(kDomain, kWeb);
  ASSERT_TRUE(xml.ok()) << xml.status().message();
  EXPECT_NE(xml.value().find("vfio-user-pci"), std::string::npos);
  EXPECT_NE(xml.value().find(kWeb.socket), std::string::npos);
  EXPECT_NE(xml.value().find("<source type=\"memfd\"/>"), std::string::npos);
  EXPECT_NE(xml.value().find("<access mode=\"shared\"/>"), std::string::npos);
  EXPECT_NE(xml.value().find("name=\"web0\""), std::string::npos);
}

TEST(DomainXml, APrefixThatMeansSomethingElseIsLeftAlone) {
  const std::string other = "<domain type='kvm' xmlns:qemu='urn:other'><name>d</name></domain>";
  const auto added = add_to_xml(other, kWeb);
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(add_to_xml(added.value(), kWeb).status().code(), EEXIST);
}

TEST(DomainXml, RefusesASecondTime) {
  const auto once = add_to_xml(kDomain, kWeb);
  ASSERT_TRUE(once.ok());
  EXPECT_EQ(add_to_xml(once.value(), kWeb).status().code(), EEXIST);
}

TEST(DomainXml, TwoVirtualGpusGetSlotsOfTheirOwn) {
  auto xml = add_to_xml(kDomain, kWeb);
  ASSERT_TRUE(xml.ok());
  xml = add_to_xml(xml.value(), kDb);
  ASSERT_TRUE(xml.ok());
  EXPECT_EQ(count(xml.value(), "vfio-user-pci"), 2u);
  EXPECT_EQ(count(xml.value(), "0x10"), 1u);
  EXPECT_EQ(count(xml.value(), "0x11"), 1u);
}

TEST(DomainXml, LeavesSlotsToTheDomainsOwnDevices) {
  const auto xml = add_to_xml(
      "<domain><devices><disk><address type='pci' domain='0x0000' bus='0x00' slot='0x10' function='0x0'/></disk>"
      "<disk><address type='pci' domain='0x0000' bus='0x01' slot='0x11' function='0x0'/></disk></devices></domain>",
      kWeb);
  ASSERT_TRUE(xml.ok()) << xml.status().message();
  EXPECT_EQ(count(xml.value(), "\"0x11\"") + count(xml.value(), "&quot;0x11&quot;"), 2u) << xml.value();
}

TEST(DomainXml, RefusesMachinesWithoutPciExpress) {
  for (const char* machine : {"pc", "pc-i440fx-10.1"}) {
    const auto xml = add_to_xml(fmt::format("<domain><os><type machine='{}'>hvm</type></os></domain>", machine), kWeb);
    EXPECT_EQ(xml.status().code(), EPROTONOSUPPORT);
    EXPECT_NE(xml.status().message().find("q35"), std::string::npos);
  }
  for (const char* machine : {"q35", "pc-q35-10.1"}) {
    EXPECT_TRUE(add_to_xml(fmt::format("<domain><os><type machine='{}'>hvm</type></os></domain>", machine), kWeb).ok());
  }
}

TEST(DomainXml, RemovesOnlyItsOwn) {
  auto xml = add_to_xml(add_to_xml(kDomain, kWeb).value(), kDb);
  ASSERT_TRUE(xml.ok());
  xml = remove_from_xml(xml.value(), kWeb);
  ASSERT_TRUE(xml.ok());
  EXPECT_EQ(xml.value().find("web0"), std::string::npos);
  EXPECT_NE(xml.value().find(kDb.socket), std::string::npos);
  xml = remove_from_xml(xml.value(), kDb);
  ASSERT_TRUE(xml.ok());
  EXPECT_EQ(xml.value().find("commandline"), std::string::npos);
}

TEST(DomainXml, KeepsTheUsersOwnArguments) {
  const std::string own =
      "<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>d</name>"
      "<qemu:commandline><qemu:arg value='-s'/></qemu:commandline></domain>";
  auto xml = remove_from_xml(add_to_xml(own, kWeb).value(), kWeb);
  ASSERT_TRUE(xml.ok());
  EXPECT_NE(xml.value().find("value=\"-s\""), std::string::npos);
}

TEST(DomainXml, RefusesWhatIsNoDomain) {
  EXPECT_EQ(add_to_xml("<network/>", kWeb).status().code(), EINVAL);
  EXPECT_EQ(add_to_xml("no xml", kWeb).status().code(), EINVAL);
  EXPECT_EQ(add_to_xml("<domain><qemu:commandline/></domain>", kWeb).status().code(), EINVAL);
  EXPECT_EQ(remove_from_xml(kDomain, kWeb).status().code(), ENOENT);
}

TEST(DomainXml, SnippetIsADomainWithTheDevice) {
  EXPECT_EQ(add_to_xml(domain_snippet(kWeb), kWeb).status().code(), EEXIST);
}

}  // namespace
}  // namespace bandsaw::libvirt
