//! Lists of names with settings of their own: `lru,s4fifo:small=0.1,main=2`.

/// The names with their settings, `name:setting=value,setting=value`: each comma has split them.
pub(crate) fn join_settings(names: &[String]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for name in names {
        match joined.last_mut().filter(|last| last.contains(':') && name.contains('=')) {
            Some(last) if !name.contains(':') => {
                last.push(',');
                last.push_str(name);
            }
            _ => joined.push(name.clone()),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_belong_to_the_name_before_them() {
        let split =
            |list: &str| join_settings(&list.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(
            split("lru,s4fifo:small=0.1,main=2,fifo"),
            ["lru", "s4fifo:small=0.1,main=2", "fifo"]
        );
        assert_eq!(
            split("remote,s4fifo:20:small=0.1,main=2+children,lru:20,s4fifo:9"),
            ["remote", "s4fifo:20:small=0.1,main=2+children", "lru:20", "s4fifo:9"]
        );
        assert_eq!(split("main=2"), ["main=2"]);
    }
}
