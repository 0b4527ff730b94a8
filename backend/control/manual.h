// Manual pages, made from what a command line says of itself, so that they do not differ from --help.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace bandsaw {

struct ManualPage {
  std::string name;   // "vgpuctl-create"
  int section = 1;    // 1: commands, 5: files, 8: daemons
  std::string title;  // in a few words, as `whatis` prints it
  std::string body;   // in the man macros: manual_section and others below make it
};

// A page as troff source. Source: man(7), groff_man(7).
std::string to_troff(const ManualPage& page);

// A heading and paragraphs of plain text; "" between lines begins a paragraph.
std::string manual_section(const std::string& heading, const std::string& text);
// A heading, and what is said of each name.
std::string manual_list(const std::string& heading, const std::vector<std::pair<std::string, std::string>>& items);

// Synopsis, description, options, arguments and commands of a command line. `called`: how it is called.
std::string manual_of(const CLI::App& app, const std::string& called);

// Writes a page to `folder`/man1/vgpuctl-create.1, for example. False: errno says why.
bool write_manual(const std::string& folder, const ManualPage& page);

}  // namespace bandsaw
