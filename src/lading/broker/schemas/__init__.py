"""The schema registry: subjects, their versions, and the rules by which a version may follow another."""
