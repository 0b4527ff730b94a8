#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "hypervisor/libvirt/domain.h"
#include "hypervisor/libvirt/hook/script.h"

namespace bandsaw::libvirt {
namespace {

const Attachment kWeb{"web0", "/run/bandsaw/web0/vfio.sock", {{"memory", "8G"}, {"compute", "30"}, {"priority", "-2"}}};
const Attachment kDb{"db0", "/run/bandsaw/db0/vfio.sock", {{"memory", "4G"}}};
constexpr const char* kDomain = "<domain type='kvm'><name>d</name><memory>1048576</memory></domain>";

// As libvirt prints it, with what other programs keep there.
std::string domain_with(const std::string& ours) {
  return R"(<domain type='kvm' id='3' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>guest</name>
  <uuid>c7a5fdbd-edaf-9455-926a-d65c16db1809</uuid>
  <metadata>
    <libosinfo:libosinfo xmlns:libosinfo="http://libosinfo.org/xmlns/libvirt/domain/1.0">
      <libosinfo:os id="http://debian.org/debian/12"/>
    </libosinfo:libosinfo>
    )" + ours +
         R"(
  </metadata>
  <memory unit='KiB'>1048576</memory>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices>
</domain>)";
}

std::string vgpus(const std::string& inner) {
  return "<bandsaw:vgpus xmlns:bandsaw='https://bandsaw.dev/xmlns/libvirt/1.0'>" + inner + "</bandsaw:vgpus>";
}

TEST(Metadata, IsReadInEveryFormThatThereWas) {
  const auto list =
      read_metadata(domain_with(vgpus("<bandsaw:vgpu name='web0' memory='8G' compute='30'/>\n"
                                      "<bandsaw:vgpu name='db0'/>")));
  ASSERT_TRUE(list.ok()) << list.status().message();
  ASSERT_EQ(list.value().size(), 2u);
  EXPECT_EQ(list.value()[0].vgpu, "web0");
  EXPECT_EQ(list.value()[0].shares, (Shares{{"memory", "8G"}, {"compute", "30"}}));
  EXPECT_TRUE(list.value()[1].shares.empty());
  // With another prefix, alone, and with a default namespace.
  for (const char* form :
       {"<v:vgpu xmlns:v='https://bandsaw.dev/xmlns/libvirt/1.0' name='web0' cap='50'/>",
        "<vgpus xmlns='https://bandsaw.dev/xmlns/libvirt/1.0'><vgpu name='web0' cap='50'/></vgpus>"}) {
    const auto one = read_metadata(domain_with(form));
    ASSERT_TRUE(one.ok()) << one.status().message();
    ASSERT_EQ(one.value().size(), 1u);
    EXPECT_EQ(one.value()[0].shares, (Shares{{"cap", "50"}}));
  }
  EXPECT_TRUE(read_metadata(domain_with("")).value().empty());
  EXPECT_TRUE(read_metadata(kDomain).value().empty());
}

TEST(Metadata, MalformedOnesAreRefusedWithTheirFault) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {vgpus("<bandsaw:vgpu/>"), "no name"},
      {vgpus("<bandsaw:vgpu name=''/>"), "no name"},
      {vgpus("<bandsaw:vgpu name='a' compude='3'/>"), "'compude'"},
      {vgpus("<bandsaw:vgpu name='a'/><bandsaw:vgpu name='a'/>"), "twice"},
      {vgpus("<bandsaw:gpu name='a'/>"), "<gpu>"},
      {vgpus("<vgpu name='a'/>"), "<vgpu>"},  // without its namespace
      {vgpus(vgpus("")), "<vgpus>"},
      {"<bandsaw:share xmlns:bandsaw='https://bandsaw.dev/xmlns/libvirt/1.0'/>", "<share>"}};
  for (const auto& [xml, part] : cases) {
    const auto read = read_metadata(domain_with(xml));
    EXPECT_EQ(read.status().code(), EINVAL) << xml;
    EXPECT_NE(read.status().message().find(part), std::string::npos) << read.status().message();
    EXPECT_EQ(add_to_xml(domain_with(xml), kDb).status().code(), EINVAL) << xml;
  }
  for (const char* text : {"", "<domain", "<network/>", "no xml"}) {
    EXPECT_EQ(read_metadata(text).status().code(), EINVAL) << text;
  }
}

TEST(Metadata, AttachWritesTheShares) {
  const auto both = add_to_xml(add_to_xml(kDomain, kWeb).value(), kDb);
  ASSERT_TRUE(both.ok());
  const auto read = read_metadata(both.value());
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read.value().size(), 2u);
  EXPECT_EQ(read.value()[0].shares, kWeb.shares);
  EXPECT_EQ(read.value()[1].shares, kDb.shares);
  // libvirt keeps one element of each namespace.
  const std::string list = "<bandsaw:vgpus";
  EXPECT_EQ(both.value().find(list), both.value().rfind(list));
}

TEST(Metadata, AttachKeepsWhatStandsThere) {
  for (const std::string& before : {vgpus("<bandsaw:vgpu name='web0' compute='55'/>"),
                                    std::string("<b:vgpu xmlns:b='https://bandsaw.dev/xmlns/libvirt/1.0' name='web0' "
                                                "compute='55'/>")}) {
    const auto xml = add_to_xml(domain_with(before), kWeb);
    ASSERT_TRUE(xml.ok()) << xml.status().message();
    const auto read = read_metadata(xml.value());
    ASSERT_EQ(read.value().size(), 1u);
    EXPECT_EQ(read.value()[0].shares, (Shares{{"compute", "55"}, {"memory", "8G"}, {"priority", "-2"}}));
    EXPECT_NE(xml.value().find("libosinfo:os"), std::string::npos);
  }
}

TEST(Metadata, DetachTakesItsOwnAndLeavesOthers) {
  const std::string before = domain_with("");
  const auto both = add_to_xml(add_to_xml(before, kWeb).value(), kDb);
  const auto one = remove_from_xml(both.value(), kWeb);
  ASSERT_TRUE(one.ok());
  ASSERT_EQ(read_metadata(one.value()).value().size(), 1u);
  EXPECT_EQ(read_metadata(one.value()).value()[0].vgpu, "db0");
  const auto none = remove_from_xml(one.value(), kDb);
  EXPECT_EQ(none.value().find(kMetadataNamespace), std::string::npos);
  EXPECT_NE(none.value().find("libosinfo:os"), std::string::npos);
}

TEST(Metadata, ChangesFollow) {
  const auto xml = add_to_xml(kDomain, kWeb);
  const auto changed = change_metadata(xml.value(), {"web0", {{"compute", "60"}, {"cap", "70"}}});
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(read_metadata(changed.value()).value()[0].shares,
            (Shares{{"memory", "8G"}, {"compute", "60"}, {"priority", "-2"}, {"cap", "70"}}));
  EXPECT_EQ(change_metadata(xml.value(), {"db0", {}}).status().code(), ENOENT);
  EXPECT_EQ(change_metadata(kDomain, {"web0", {}}).status().code(), ENOENT);
}

TEST(Metadata, SharingIsAShareLikeOthers) {
  const Attachment mps{"web0", "/x", {{"memory", "8G"}, {"sharing", "mps"}}};
  const std::string xml = add_to_xml(kDomain, mps).value();
  EXPECT_EQ(read_metadata(xml).value()[0].shares, mps.shares);
  EXPECT_NE(domain_snippet(mps).find("sharing"), std::string::npos);
}

TEST(Metadata, ValuesAreEscaped) {
  const Attachment odd{"web0", "/x", {{"memory", "<'\"&>"}}};
  EXPECT_EQ(read_metadata(add_to_xml(kDomain, odd).value()).value()[0].shares, odd.shares);
}

TEST(Metadata, TheSnippetCarriesTheShares) {
  EXPECT_EQ(read_metadata(domain_snippet(kWeb)).value()[0].shares, kWeb.shares);
  EXPECT_EQ(read_metadata(xen_domain_snippet(kWeb)).value()[0].shares, kWeb.shares);
}

// Runs the hook's script with a vgpuctl that writes down its arguments and ends with 7.
class HookScript : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    folder_ = ::mkdtemp(folder);
    std::ofstream(vgpuctl()) << "#!/bin/sh\nprintf '%s|' \"$@\" > \"${0%/*}/said\"\ncat >> \"${0%/*}/said\"\nexit 7\n";
    ::chmod(vgpuctl().c_str(), 0755);
    std::ofstream(folder_ + "/hook") << hook_script(kHookDrivers[0], vgpuctl(), "/run/it's here");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string vgpuctl() const { return folder_ + "/vgpu'ctl $x"; }
  int run(const std::string& arguments) const {
    const std::string xml = folder_ + "/xml";
    std::ofstream(xml) << xml_;
    return WEXITSTATUS(std::system(("sh " + folder_ + "/hook " + arguments + " < " + xml).c_str()));
  }
  std::string said() const {
    std::ostringstream text;
    text << std::ifstream(folder_ + "/said").rdbuf();
    return text.str();
  }
  std::string folder_, xml_ = fmt::format("<domain>\\n {}\n</domain>\n", kMetadataNamespace);
};

TEST_F(HookScript, HandsOverAStartAndItsEnd) {
  EXPECT_EQ(run("guest prepare begin -"), 7);
  EXPECT_EQ(said(), "--run|/run/it's here|hook|--hypervisor|libvirt|guest|" + xml_);
}

TEST_F(HookScript, IsNotAboutDomainsOfOthers) {
  xml_ = "<domain/>\n";
  std::filesystem::remove(vgpuctl());
  EXPECT_EQ(run("guest prepare begin -"), 0);
}

TEST_F(HookScript, HasNothingToDoWithTheRest) {
  for (const char* arguments : {"guest start begin -", "guest prepare end -", "guest stopped end -",
                                "guest release end -", "guest migrate begin -", ""}) {
    EXPECT_EQ(run(arguments), 0) << arguments;
    EXPECT_EQ(said(), "");
  }
}

}  // namespace
}  // namespace bandsaw::libvirt
