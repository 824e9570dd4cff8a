"""One actor per job: inbox, decisions executed, plans pushed, reports taken."""
