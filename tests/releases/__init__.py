"""What a release keeps in changelogs and commits, written down when it was current, and read by every later one."""
