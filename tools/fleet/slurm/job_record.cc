#include "tools/fleet/slurm/job_record.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "backend/control/paths.h"
#include "memory/base/json.h"

namespace bandsaw::slurm {
namespace {

constexpr unsigned kFolderMode = 0755;

}  // namespace

std::string record_path(const std::string& folder, uint32_t job) { return folder + "/" + std::to_string(job); }

Status write_record(const std::string& folder, uint32_t job, const JobRecord& record) {
  if (Status status = make_folder(folder, kFolderMode); !status.ok()) return status;
  const std::string path = record_path(folder, job), temporary = path + ".new";
  std::ofstream file(temporary, std::ios::trunc);
  file << json_text({{"vgpus", record.vgpus},
                     {"request", record.request},
                     {"refusal", record.refusal},
                     {"slurmd", record.slurmd}})
       << '\n';
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) < 0) {
    Status status = Status::system("cannot write {}", path);
    ::unlink(temporary.c_str());
    return status;
  }
  return {};
}

Result<JobRecord> read_record(const std::string& folder, uint32_t job) {
  const std::string path = record_path(folder, job);
  std::ifstream file(path);
  if (!file) return Status::system("cannot read {}", path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const nlohmann::json content = parse_json(text);
  if (!content.is_object()) return Status::error(EPROTO, "{} is damaged; remove it", path);
  JobRecord record;
  try {
    record = {content.at("vgpus").get<std::vector<std::string>>(), content.at("request"), content.at("refusal"),
              text_in(content, "slurmd")};
  } catch (const nlohmann::json::exception&) {
    return Status::error(EPROTO, "{} is damaged; remove it", path);
  }
  return record;
}

void remove_record(const std::string& folder, uint32_t job) { ::unlink(record_path(folder, job).c_str()); }

std::vector<uint32_t> recorded_jobs(const std::string& folder) {
  std::vector<uint32_t> jobs;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    const std::string name = entry.path().filename();
    uint32_t job = 0;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), job);
    if (code == std::errc() && end == name.data() + name.size()) jobs.push_back(job);
  }
  return jobs;
}

}  // namespace bandsaw::slurm
