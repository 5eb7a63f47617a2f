// Replaces libpmix.so.2, by LD_LIBRARY_PATH. The process that it serves is rank PMIX_RANK of two,
// each on a machine of its own, and rank 0 has published the text in STAND_IN_WORD.
#include <pmix.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

pmix_value_t* make_value() {
  return static_cast<pmix_value_t*>(std::calloc(1, sizeof(pmix_value_t)));
}

pmix_value_t* make_text(const std::string& text) {
  pmix_value_t* value = make_value();
  value->type = PMIX_STRING;
  value->data.string = strdup(text.c_str());
  return value;
}

}  // namespace

extern "C" {

pmix_status_t PMIx_Init(pmix_proc_t* self, pmix_info_t*, std::size_t) {
  std::strncpy(self->nspace, variable("PMIX_NAMESPACE").c_str(), sizeof self->nspace - 1);
  self->rank = static_cast<pmix_rank_t>(std::stoi(variable("PMIX_RANK")));
  return PMIX_SUCCESS;
}

pmix_status_t PMIx_Finalize(const pmix_info_t*, std::size_t) { return PMIX_SUCCESS; }

pmix_status_t PMIx_Get(const pmix_proc_t*, const char* key, const pmix_info_t*, std::size_t infos,
                       pmix_value_t** value) {
  const std::string_view wanted(key);
  if (wanted == PMIX_JOB_SIZE) {
    *value = make_value();
    (*value)->type = PMIX_UINT32;
    (*value)->data.uint32 = 2;
  } else if (wanted == PMIX_LOCAL_PEERS) {
    *value = make_text(variable("PMIX_RANK"));
  } else if (infos == 0 && wanted == "tutti.rank0.0") {
    *value = make_text(variable("STAND_IN_WORD"));
  } else {
    // This answers requests with PMIX_OPTIONAL: no fence has brought the value yet.
    return PMIX_ERR_NOT_FOUND;
  }
  return PMIX_SUCCESS;
}

pmix_status_t PMIx_Put(pmix_scope_t, const char*, pmix_value_t*) { return PMIX_SUCCESS; }
pmix_status_t PMIx_Commit() { return PMIX_SUCCESS; }
pmix_status_t PMIx_Fence(const pmix_proc_t*, std::size_t, const pmix_info_t*, std::size_t) {
  return PMIX_SUCCESS;
}
const char* PMIx_Error_string(pmix_status_t) { return "the stand-in has no such thing"; }
}
