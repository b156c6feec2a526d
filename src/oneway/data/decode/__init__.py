"""From bytes on disk to pixels and labels; nothing a file holds is trusted."""
