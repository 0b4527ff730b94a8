// Stands for nvJitLink: what it links is the list of the kinds of its inputs.
#include <cstdint>
#include <cstring>
#include <string>

namespace {

struct Link {
  std::string inputs;
  bool optimises = false, gives_ptx = false;
};

}  // namespace

extern "C" {

int nvJitLinkCreate(Link** link, uint32_t count, const char** options) {
  *link = new Link;
  for (uint32_t i = 0; i < count; i++) {
    (*link)->optimises |= !std::strcmp(options[i], "-lto");
    (*link)->gives_ptx |= !std::strcmp(options[i], "-ptx");
  }
  return 0;
}

int nvJitLinkDestroy(Link** link) { return delete *link, 0; }

int nvJitLinkAddData(Link* link, int type, const void*, size_t, const char*) {
  link->inputs += std::to_string(type);
  return 0;
}

int nvJitLinkComplete(Link*) { return 0; }

int nvJitLinkGetLinkedCubinSize(Link* link, size_t* bytes) {
  *bytes = link->inputs.size() + 6;
  return link->gives_ptx;
}
int nvJitLinkGetLinkedCubin(Link* link, char* to) {
  std::strcpy(to, ("CUBIN" + link->inputs).c_str());
  return link->gives_ptx;
}

int nvJitLinkGetLinkedPtxSize(Link* link, size_t* bytes) {
  *bytes = link->inputs.size() + 4;
  return !link->gives_ptx || !link->optimises;
}
int nvJitLinkGetLinkedPtx(Link* link, char* to) {
  std::strcpy(to, ("PTX" + link->inputs).c_str());
  return !link->gives_ptx || !link->optimises;
}

// As nvJitLink's header calls it.
int __nvJitLinkCreate_13_0(Link** link, uint32_t count, const char** options) {
  return nvJitLinkCreate(link, count, options);
}
}
