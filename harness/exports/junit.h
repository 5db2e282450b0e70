// The verdicts of `gate` and `verify` as JUnit XML, which GitLab, Jenkins and actions of GitHub show as tests.
#pragma once

#include <string>
#include <vector>

namespace attnbench {

// The XML of these paths, with a test suite for each. A path is a folder with gate.json, which `gate --out` writes, such a file,
// or a file with the JSON that `verify --format json` prints.
//
// Each case of a gate, and each row of `verify`, is a test case:
//   failure  a regression that no waiver accepts, or a row that disagrees; the text has the change with its 95 % interval, or the
//            errors with the tolerance
//   error    a case that cannot be compared, with the reason
//   skipped  what was not decided, is new, waived, unsupported or unverified, with the reason
// The text of a case that passes has the same numbers. Characters that XML 1.0 does not take are replaced.
//
// Throws UsageError that names the path, the case and what was expected for a file that holds anything else.
std::string junit_of(const std::vector<std::string>& paths);

}  // namespace attnbench
