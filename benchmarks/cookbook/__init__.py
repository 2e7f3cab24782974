"""Two recipes of tinker-cookbook, unmodified, against `openrl serve` on this machine: does what they train learn?"""
