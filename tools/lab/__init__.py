"""What the tools share: set-up of the machine, the virtual machine lab, and running programs in it."""
