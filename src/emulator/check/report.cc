#include "emulator/check/report.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "emulator/base/fault.h"
#include "emulator/base/json.h"

namespace warploom::emulator {
namespace {

bool same(const Report& report, Finding finding, const Op* first, const Op* second) {
  return report.finding == finding && report.first == first && report.second == second;
}

}  // namespace

const char* finding_name(Finding finding) {
  switch (finding) {
    case Finding::kDataRace: return "data race";
    case Finding::kMissingProxyFence: return "missing proxy fence";
    case Finding::kMissingTensorMapFence: return "missing tensor map fence";
    case Finding::kUninitializedRead: return "uninitialised read";
    case Finding::kMbarrierMisuse: return "mbarrier misuse";
    case Finding::kMbarrierInitRace: return "mbarrier init race";
    case Finding::kMbarrierLapped: return "mbarrier phase lapped";
    case Finding::kEarlyExit: return "early exit";
    case Finding::kRegisterRace: return "wgmma register race";
    case Finding::kTensorMemory: return "tensor memory";
    case Finding::kConstantMemory: return "write of constant memory";
    case Finding::kNotStarted: return "CTA not started";
    case Finding::kMissingGridWait: return "missing griddepcontrol.wait";
    case Finding::kOutOfBounds: return "out of bounds";
    case Finding::kMisaligned: return "misaligned access";
    case Finding::kBarrierMisuse: return "barrier misuse";
    case Finding::kIllegalDescriptor: return "illegal descriptor";
    case Finding::kDeadlock: return "deadlock";
    case Finding::kLimit: return "instruction limit";
    case Finding::kError: return "error";
  }
  return "";
}

Finding finding_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kOther: return Finding::kError;
    case FaultKind::kOutOfBounds: return Finding::kOutOfBounds;
    case FaultKind::kMisaligned: return Finding::kMisaligned;
    case FaultKind::kMbarrier: return Finding::kMbarrierMisuse;
    case FaultKind::kBarrier: return Finding::kBarrierMisuse;
    case FaultKind::kDescriptor: return Finding::kIllegalDescriptor;
    case FaultKind::kDeadlock: return Finding::kDeadlock;
    case FaultKind::kLimit: return Finding::kLimit;
  }
  return Finding::kError;
}

bool ReportLog::is_new(Finding finding, const Op* first, const Op* second) const {
  if (reports_.size() >= kMost) return false;
  return std::none_of(reports_.begin(), reports_.end(), [&](const Report& report) {
    return same(report, finding, first, second);
  });
}

void ReportLog::add(Report report) {
  if (is_new(report.finding, report.first, report.second)) reports_.push_back(std::move(report));
}

// Clusters mostly find the same: the one of the lowest index speaks for all.
void LaunchReports::add(uint32_t cluster, const ReportLog& log) {
  if (log.reports().empty()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (by_cluster_.size() >= ReportLog::kMost && by_cluster_.rbegin()->first < cluster) return;
  by_cluster_[cluster] = log.reports();
  if (by_cluster_.size() > ReportLog::kMost) by_cluster_.erase(std::prev(by_cluster_.end()));
}

std::vector<Report> LaunchReports::distinct() const {
  ReportLog merged;
  for (const auto& entry : by_cluster_) {
    for (const Report& report : entry.second) merged.add(report);
  }
  return merged.reports();
}

// What was found first is often the cause of what went wrong later.
std::string describe_findings(const std::vector<Report>& findings, const std::string& problem) {
  if (findings.empty()) return problem;
  std::string text = findings.front().text;
  if (findings.size() > 1) text += format(" (and %zu other findings)", findings.size() - 1);
  if (!problem.empty()) text += "\nThe launch ended with: " + problem;
  return text;
}

std::string reports_json(const std::vector<Report>& reports) {
  std::string result = "[";
  for (const Report& report : reports) {
    if (result.size() > 1) result += ", ";
    result += "{\"kind\": " + json_string(finding_name(report.finding)) +
              ", \"text\": " + json_string(report.text) + "}";
  }
  return result + "]";
}

}  // namespace warploom::emulator
