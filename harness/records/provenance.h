// Where records come from: whether two folders, or a folder and its records, are of the same build, machine, settings and files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// Which names of two contents of environment.json are compared: those of `here`, or those of both.
enum class ComparedNames { here, both };
// The differences between two contents of environment.json, since all records of a folder must come from the same build, machine
// and settings. One line of text for each value of the environment and the settings that differs; empty where none differs.
std::string provenance_differences(const Json& there, const Json& here, ComparedNames compared);
// Compares the records with the provenance in order, and returns the differences of the first record that has any, as text of the
// same form. External records are left out.
std::string record_differences(const Json& provenance, const std::vector<Record>& records);

// The digests of the files that these records depend on, by "method_digest of METHOD" (empty text for a method that is part of
// attnbench) and "inputs_digest of INPUTS" (only for inputs from a file). External records are left out.
using FileDigests = std::map<std::string, std::string>;
FileDigests file_digests(const std::vector<Record>& records);
// The files that differ, since a changed file of a method is another build, and one of inputs another case: a line of text for
// each that both have with different digests; empty if there is none.
std::string digest_differences(const FileDigests& there, const FileDigests& here);

}  // namespace attnbench
