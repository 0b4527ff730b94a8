// vgpud: keeps the list of this host's virtual GPUs and a session for each.
#include "backend/vgpud/program.h"

int main(int argc, char** argv) { return bandsaw::run_vgpud(argc, argv); }
