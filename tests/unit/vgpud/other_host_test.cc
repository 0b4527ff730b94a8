#include "tools/vgpuctl/other_host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace bandsaw::ctl {
namespace {

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(OtherHost, IsReachedBySshAsLibvirtsUriSays) {
  const auto command = [](const std::string& uri) { return OtherHost::command_of(uri).value(); };
  EXPECT_EQ(command("qemu+ssh://web2/system"), "ssh -o BatchMode=yes 'web2'");
  EXPECT_EQ(command("qemu+ssh://root@web2:2200/system?socket=/x"), "ssh -o BatchMode=yes -p '2200' 'root@web2'");
  EXPECT_EQ(command("qemu+ssh://root@[fe80::1]/system"), "ssh -o BatchMode=yes 'root@[fe80::1]'");
  for (const char* const uri :
       {"qemu:///system", "qemu+unix:///system", "qemu+ssh:///system", "qemu+ssh://-oX=y/system"}) {
    EXPECT_EQ(OtherHost::command_of(uri).status().code(), EINVAL) << uri;
  }
}

TEST(OtherHost, RunsLinesInItsOwnShell) {
  const OtherHost host("env PLACE=there sh -c");
  EXPECT_EQ(host.run("echo $PLACE; echo two").value(), "there\ntwo");
  const std::string odd = "it's $PLACE; `x`\n\"y\"";
  EXPECT_EQ(host.run("printf %s " + shell_word(odd)).value(), odd);
}

TEST(OtherHost, SaysWhyALineFailed) {
  const OtherHost host("sh -c");
  EXPECT_EQ(host.run("echo 'vgpuctl: no room' >&2; echo '  free some' >&2; exit 1").status().message(),
            "on the other host: no room;  free some");
  EXPECT_EQ(host.run("exit 7").status().message(), "on the other host: exit status 7");
  EXPECT_EQ(host.try_run("echo said; exit 4").value().exit, 4);
  EXPECT_FALSE(OtherHost("/no/such/program").run("true").ok());
}

TEST(OtherHost, FilesGoAndCome) {
  char folder[] = "/tmp/other-host-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string from = std::string(folder) + "/from", to = std::string(folder) + "/to";
  const std::string content(3 << 20, 'x');  // more than a pipe holds
  std::ofstream(from) << content;
  const OtherHost host("sh -c");
  EXPECT_EQ(host.run("wc -c", from).value(), std::to_string(content.size()));
  EXPECT_TRUE(host.run("cat", from, to).ok());
  EXPECT_EQ(text_of(to), content);
  EXPECT_EQ(host.run("cat", folder + std::string("/absent")).status().code(), ENOENT);
  for (const std::string& path : {from, to}) ::unlink(path.c_str());
  ::rmdir(folder);
}

TEST(Run, ReadsBothEndsHoweverMuchTheySay) {
  const auto said = run({"sh", "-c", "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2"});
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(said.value().out.size(), 300000u);
  EXPECT_EQ(said.value().error.size(), 300000u);
  EXPECT_EQ(run({"/no/such/program"}).status().code(), ENOENT);
}

}  // namespace
}  // namespace bandsaw::ctl
