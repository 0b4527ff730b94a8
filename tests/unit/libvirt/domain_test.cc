// Attaching through libvirt's own C API and its test driver: its parser, its rules for <metadata>, no hypervisor. The
// test driver knows nothing of QEMU's arguments and drops them, so only what it keeps is looked at.
#include "hypervisor/libvirt/domain.h"

#include <gtest/gtest.h>
#include <libvirt/libvirt.h>

#include <memory>

namespace bandsaw::libvirt {
namespace {

constexpr const char* kUri = "test:///default";

// The driver's domains live as long as somebody is connected.
class TestDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    connection_.reset(virConnectOpen(kUri));
    if (!connection_) GTEST_SKIP() << "libvirt has no test driver here";
    define("guest", "<vcpu>1</vcpu>");
  }
  void define(const std::string& name, const std::string& more) {
    const std::string xml = "<domain type='test'><name>" + name + "</name><memory unit='MiB'>64</memory>" + more +
                            "<os><type>hvm</type></os></domain>";
    const std::unique_ptr<virDomain, decltype(&virDomainFree)> domain(
        virDomainDefineXML(connection_.get(), xml.c_str()), &virDomainFree);
    ASSERT_TRUE(domain);
  }
  static std::vector<DomainVgpu> metadata(const std::string& domain) {
    const auto xml = domain_xml(kUri, domain);
    EXPECT_TRUE(xml.ok()) << xml.status().message();
    const auto read = read_metadata(xml.value());
    EXPECT_TRUE(read.ok()) << read.status().message();
    return read.value();
  }
  struct Close {
    void operator()(virConnect* connection) const { virConnectClose(connection); }
  };
  std::unique_ptr<virConnect, Close> connection_;
};

TEST_F(TestDriver, KeepsTheSharesOfTwoVirtualGpus) {
  ASSERT_TRUE(attach(kUri, "guest", {"web0", "/run/web0", {{"memory", "8G"}, {"compute", "30"}}}).ok());
  const Status second = attach(kUri, "guest", {"db0", "/run/db0", {{"memory", "4G"}}});
  ASSERT_TRUE(second.ok()) << second.message();
  const auto vgpus = metadata("guest");
  ASSERT_EQ(vgpus.size(), 2u);
  EXPECT_EQ(vgpus[0].shares, (Shares{{"memory", "8G"}, {"compute", "30"}}));
  EXPECT_EQ(vgpus[1].vgpu, "db0");
}

TEST_F(TestDriver, ChangesAreWrittenAlsoWhileItRuns) {
  ASSERT_TRUE(attach(kUri, "guest", {"web0", "/run/web0", {{"compute", "30"}}}).ok());
  const std::unique_ptr<virDomain, decltype(&virDomainFree)> domain(virDomainLookupByName(connection_.get(), "guest"),
                                                                    &virDomainFree);
  ASSERT_EQ(virDomainCreate(domain.get()), 0);
  const Status status = set_shares(kUri, "guest", {"web0", {{"compute", "60"}}});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(metadata("guest")[0].shares, (Shares{{"compute", "60"}}));
  EXPECT_EQ(attach(kUri, "guest", {"db0", "/run/db0", {}}).code(), EBUSY);
  EXPECT_EQ(set_shares(kUri, "guest", {"db0", {{"compute", "60"}}}).code(), ENOENT);
}

TEST_F(TestDriver, WhatAnAdministratorWroteIsKept) {
  define("own",
         "<metadata><b:vgpus xmlns:b='https://bandsaw.dev/xmlns/libvirt/1.0'><b:vgpu name='web0' cap='50'/></b:vgpus>"
         "</metadata>");
  ASSERT_TRUE(attach(kUri, "own", {"web0", "/run/web0", {{"cap", "100"}, {"compute", "30"}}}).ok());
  EXPECT_EQ(metadata("own")[0].shares, (Shares{{"cap", "50"}, {"compute", "30"}}));
}

TEST_F(TestDriver, ADomainOnXenHasTheMetadataAlone) {
  const Attachment web{"web0", "", {{"compute", "30"}}};
  for (int time = 0; time < 2; ++time) ASSERT_TRUE(attach_xen(kUri, "guest", web).ok());
  ASSERT_EQ(metadata("guest").size(), 1u);
  EXPECT_EQ(metadata("guest")[0].shares, web.shares);
  EXPECT_EQ(domain_xml(kUri, "guest").value().find("memfd"), std::string::npos);
  for (int time = 0; time < 2; ++time) ASSERT_TRUE(detach_xen(kUri, "guest", web).ok());
  EXPECT_TRUE(metadata("guest").empty());
  EXPECT_EQ(attach_xen(kUri, "nosuchdomain", web).code(), ENOENT);
}

TEST_F(TestDriver, SaysWhatIsMissing) {
  EXPECT_EQ(domain_xml(kUri, "nosuchdomain").status().code(), ENOENT);
  EXPECT_EQ(domain_xml("test:///nonexistent/file", "x").status().code(), ENOTCONN);
}

}  // namespace
}  // namespace bandsaw::libvirt
