"""The passes that know no architecture, a file each."""
