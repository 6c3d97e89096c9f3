"""The grammar of the demo corpus: every meaning is one object, with one wording in English, Chinese and French.

Read top to bottom: words, noun phrases, where and when, sentences, spelling. Phrases and sentences offer `en()`,
`zh()` and `fr()`: lists of words without capitals and final mark; `sentence` joins them, with a/an, elision,
contraction, capital and punctuation.

So that no two meanings share a sentence in any of the languages, what one language hides is not said in the others:
- a bare noun is definite singular in Chinese (猫 = the cat = le chat), 那些 is "the" with a plural; no "those";
- bare verb = simple present, 正在 = progressive (est en train de), 了/没有 = past, 会 = future (va …);
- no "you", "they", "his", "her"; I and we never with a French participle or adjective that would show gender;
- no word with equal forms that would hide number or tense (sheep, read).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

LANGUAGES = ("en", "zh", "fr")


def _rows(table: str) -> Iterator[list[str]]:
    """Rows of a word table: a line or ` / ` ends one, blanks part the cells, `_` is a blank in a cell, `-` no word."""
    for row in table.strip().replace(" / ", "\n").splitlines():
        yield ["" if cell == "-" else cell.replace("_", " ") for cell in row.split()]


# ---- words ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    """A noun that can be counted. `tags` say which verbs, adjectives and places it goes with."""

    en: str
    en_plural: str
    zh: str
    measure: str
    fr: str
    fr_plural: str
    gender: str
    _: KW_ONLY
    tags: frozenset[str]


def _tags(cell: str) -> frozenset[str]:
    implied = {"profession": ("adult", "person"), "adult": ("person",)}
    return frozenset(tag for given in cell.split(",") if given for tag in (given, *implied.get(given, ())))


NOUNS = [
    Noun(*row[:7], tags=_tags(row[7]))
    for row in _rows("""
man men 男人 个 homme hommes m adult / woman women 女人 个 femme femmes f adult
boy boys 男孩 个 garçon garçons m person / girl girls 女孩 个 fille filles f person
child children 孩子 个 enfant enfants m person / mother mothers 母亲 位 mère mères f adult
father fathers 父亲 位 père pères m adult / king kings 国王 位 roi rois m adult
queen queens 王后 位 reine reines f adult / doctor doctors 医生 位 médecin médecins m profession
teacher teachers 老师 位 professeur professeurs m profession
engineer engineers 工程师 位 ingénieur ingénieurs m profession
journalist journalists 记者 位 journaliste journalistes m profession
dentist dentists 牙医 位 dentiste dentistes m profession / painter painters 画家 位 peintre peintres m profession
nurse nurses 护士 位 infirmière infirmières f adult / farmer farmers 农民 位 fermier fermiers m adult
neighbour neighbours 邻居 位 voisin voisins m adult / friend friends 朋友 位 ami amis m adult
soldier soldiers 士兵 名 soldat soldats m adult / student students 学生 名 étudiant étudiants m adult
tourist tourists 游客 名 touriste touristes m adult / cat cats 猫 只 chat chats m animal
dog dogs 狗 条 chien chiens m animal / bird birds 鸟 只 oiseau oiseaux m animal
horse horses 马 匹 cheval chevaux m animal / cow cows 奶牛 头 vache vaches f animal
rabbit rabbits 兔子 只 lapin lapins m animal / lion lions 狮子 头 lion lions m animal
tiger tigers 老虎 只 tigre tigres m animal / monkey monkeys 猴子 只 singe singes m animal
pig pigs 猪 头 cochon cochons m animal / duck ducks 鸭子 只 canard canards m animal
wolf wolves 狼 只 loup loups m animal / fox foxes 狐狸 只 renard renards m animal
snake snakes 蛇 条 serpent serpents m animal / goat goats 山羊 只 chèvre chèvres f animal
turtle turtles 乌龟 只 tortue tortues f animal / book books 书 本 livre livres m goods,gift,work,write
letter letters 信 封 lettre lettres f thing,gift,work,write
newspaper newspapers 报纸 份 journal journaux m goods,gift,work
story stories 故事 个 histoire histoires f work,write,gift
song songs 歌 首 chanson chansons f work,write,sound,gift / film films 电影 部 film films m work,film,gift
photo photos 照片 张 photo photos f goods,gift / table tables 桌子 张 table tables f goods,top,wash
chair chairs 椅子 把 chaise chaises f goods,top,repair,wash / bed beds 床 张 lit lits m goods,top,repair,wash
lamp lamps 灯 盏 lampe lampes f goods,break,repair / clock clocks 时钟 个 horloge horloges f goods,repair,break
door doors 门 扇 porte portes f thing,open,repair,colour,wash,spot
window windows 窗户 扇 fenêtre fenêtres f thing,open,break,repair,wash,spot
box boxes 箱子 个 boîte boîtes f goods,open,inside / bag bags 包 个 sac sacs m goods,gift,open,inside
key keys 钥匙 把 clé clés f goods,gift / knife knives 刀 把 couteau couteaux m goods,gift,wash
umbrella umbrellas 雨伞 把 parapluie parapluies m goods,gift,open
hat hats 帽子 顶 chapeau chapeaux m goods,gift,wash / shirt shirts 衬衫 件 chemise chemises f goods,gift,wash
coat coats 外套 件 manteau manteaux m goods,gift,wash / dress dresses 裙子 条 robe robes f goods,gift,wash
cup cups 杯子 个 tasse tasses f goods,gift,break,wash
bottle bottles 瓶子 个 bouteille bouteilles f goods,open,break,wash
ball balls 球 个 ballon ballons m goods,gift,catch,wash
guitar guitars 吉他 把 guitare guitares f goods,gift,repair,sound
piano pianos 钢琴 架 piano pianos m goods,repair,sound
computer computers 电脑 台 ordinateur ordinateurs m goods,repair,gift
phone phones 手机 部 téléphone téléphones m goods,repair,gift
car cars 汽车 辆 voiture voitures f goods,vehicle,repair,wash,spot
bicycle bicycles 自行车 辆 vélo vélos m goods,gift,repair,wash
train trains 火车 列 train trains m thing,vehicle,colour,repair,draw
plane planes 飞机 架 avion avions m goods,vehicle,repair / boat boats 船 艘 bateau bateaux m goods,vehicle,repair
flower flowers 花 朵 fleur fleurs f goods,gift,draw / tree trees 树 棵 arbre arbres m thing,draw,shade,spot
stone stones 石头 块 pierre pierres f thing,gift,draw,colour
apple apples 苹果 个 pomme pommes f goods,gift,food,wash / orange oranges 橙子 个 orange oranges f food,gift,wash
pear pears 梨 个 poire poires f food,gift,wash / egg eggs 鸡蛋 个 œuf œufs m food,gift,wash,break
cake cakes 蛋糕 个 gâteau gâteaux m food,gift / ring rings 戒指 枚 bague bagues f goods,gift,wash
bridge bridges 桥 座 pont ponts m thing,draw,repair,top,shade
garden gardens 花园 个 jardin jardins m place,room,visit,draw
house houses 房子 座 maison maisons f place,room,draw,spot,sell,visit
kitchen kitchens 厨房 间 cuisine cuisines f place,room,clean,visit / park parks 公园 个 parc parcs m place,room,visit
forest forests 森林 片 forêt forêts f place,room,draw,spot,visit
room rooms 房间 个 chambre chambres f place,room,clean,visit
school schools 学校 所 école écoles f place,site,clean,visit,spot
hospital hospitals 医院 家 hôpital hôpitaux m place,site,clean,visit,spot
restaurant restaurants 餐厅 家 restaurant restaurants m place,site,clean,spot
market markets 市场 个 marché marchés m place,site,visit,spot
station stations 车站 个 gare gares f place,site,spot,clean
museum museums 博物馆 座 musée musées m place,site,visit,spot,work
hotel hotels 酒店 家 hôtel hôtels m place,site,clean,spot
library libraries 图书馆 座 bibliothèque bibliothèques f place,site,visit,clean,spot
church churches 教堂 座 église églises f place,site,visit,draw,spot
shop shops 商店 家 magasin magasins m place,site,clean,spot
""")
]


@dataclass(frozen=True, eq=False, slots=True)
class MassNoun:
    """A substance; only ever indefinite: tea, 茶, du thé. Serving it takes a cup or a bottle."""

    en: str
    zh: str
    fr: str
    gender: str
    kind: str
    vessel: str


MASS_NOUNS = [
    MassNoun(*row)
    for row in _rows("""
water 水 eau f drink bottle
milk 牛奶 lait m drink bottle
wine 葡萄酒 vin m drink bottle
tea 茶 thé m drink cup
coffee 咖啡 café m drink cup
bread 面包 pain m food -
cheese 奶酪 fromage m food -
fish 鱼 poisson m food -
meat 肉 viande f food -
rice 米饭 riz m food -
""")
]
VESSELS = {
    "bottle": ("bottle", "bottles", "瓶", "bouteille", "bouteilles", "f"),
    "cup": ("cup", "cups", "杯", "tasse", "tasses", "f"),
}


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    """An adjective. `fr_vowel`: masculine before a vowel; `kinds`: tags of the nouns that it suits."""

    en: str
    en_more: str
    zh: str
    zh_predicate: str
    fr_masculine: str
    fr_feminine: str
    fr_masculines: str
    fr_feminines: str
    fr_vowel: str
    position: str
    _: KW_ONLY
    kinds: frozenset[str]

    @property
    def fr(self) -> tuple[str, str, str, str]:
        return self.fr_masculine, self.fr_feminine, self.fr_masculines, self.fr_feminines

    @property
    def is_colour(self) -> bool:
        return not self.en_more

    @property
    def hides_gender(self) -> bool:
        return self.fr[0] == self.fr[1]


ADJECTIVES = [
    Adjective(*row[:10], kinds=_tags(row[10]))
    for row in _rows("""
big bigger 大 大 grand grande grands grandes - before animal,goods,thing,place
small smaller 小 小 petit petite petits petites - before animal,goods,thing,place
beautiful more_beautiful 漂亮的 漂亮 beau belle beaux belles bel before animal,goods,place
new newer 新 新 nouveau nouvelle nouveaux nouvelles nouvel before goods,place
old older 旧 旧 vieux vieille vieux vieilles vieil before goods
young younger 年轻的 年轻 jeune jeune jeunes jeunes - before adult
expensive more_expensive 昂贵的 昂贵 cher chère chers chères - after goods
dirty dirtier 脏的 脏 sale sale sales sales - after wash,clean
clean cleaner 干净的 干净 propre propre propres propres - after wash,clean
red - 红色的 红色的 rouge rouge rouges rouges - after goods,colour
blue - 蓝色的 蓝色的 bleu bleue bleus bleues - after goods,colour
yellow - 黄色的 黄色的 jaune jaune jaunes jaunes - after goods,colour
white - 白色的 白色的 blanc blanche blancs blanches - after goods,colour,animal
black - 黑色的 黑色的 noir noire noirs noires - after goods,colour,animal
kind kinder 善良的 善良 gentil gentille gentils gentilles - after person
happy happier 快乐的 快乐 heureux heureuse heureux heureuses - after person
sad sadder 悲伤的 悲伤 triste triste tristes tristes - after person,animal
tired more_tired 疲惫的 疲惫 fatigué fatiguée fatigués fatiguées - after person,animal
intelligent more_intelligent 聪明的 聪明 intelligent intelligente intelligents intelligentes - after person,animal
strong stronger 强壮的 强壮 fort forte forts fortes - after person,animal
famous more_famous 有名的 有名 célèbre célèbre célèbres célèbres - after adult,work
rich richer 富有的 富有 riche riche riches riches - after adult
lazy lazier 懒惰的 懒惰 paresseux paresseuse paresseux paresseuses - after person,animal
brave braver 勇敢的 勇敢 courageux courageuse courageux courageuses - after person,animal
delicious more_delicious 美味的 美味 délicieux délicieuse délicieux délicieuses - after food
quiet quieter 安静的 安静 calme calme calmes calmes - after place,animal
""")
]


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """A verb. `je, il, nous, ils`: French present. `auxiliary`: "être", or "" for avoir. `uses`: TENSES, * = all.

    `subjects` and `objects` are tags of nouns; `mass:drink` is a substance, `city` a city.
    """

    en: str
    en_third: str
    en_ing: str
    en_past: str
    en_preposition: str
    zh: str
    zh_past: str
    fr: str
    fr_participle: str
    je: str
    il: str
    nous: str
    ils: str
    fr_preposition: str
    auxiliary: str
    uses: str
    _: KW_ONLY
    subjects: frozenset[str]
    objects: frozenset[str]

    @property
    def fr_present(self) -> tuple[str, str, str, str]:
        return self.je, self.il, self.nous, self.ils

    @property
    def tenses(self) -> str:
        return "".join(TENSES) if self.uses == "*" else self.uses

    @property
    def has_recipient(self) -> bool:
        return self.en in ("give", "send")


TENSES = {
    "P": "present",
    "N": "negated present",
    "G": "progressive",
    "A": "past",
    "F": "future",
    "C": "can",
    "W": "want",
    "U": "must",
}

VERBS = [
    Verb(*row[:16], subjects=_tags(row[16]), objects=_tags(row[17]))
    for row in _rows("""
chase chases chasing chased - 追 追了 poursuivre poursuivi poursuis poursuit poursuivons poursuivent - - * person,animal person,animal
watch watches watching watched - 看 看了 regarder regardé regarde regarde regardons regardent - - * person,animal animal,film,vehicle
buy buys buying bought - 买 买了 acheter acheté achète achète achetons achètent - - * person goods,food,mass:food,mass:drink
sell sells selling sold - 卖 卖了 vendre vendu vends vend vendons vendent - - * person goods,food,sell
eat eats eating ate - 吃 吃了 manger mangé mange mange mangeons mangent - - * person,animal food,mass:food
drink drinks drinking drank - 喝 喝了 boire bu bois boit buvons boivent - - * person,animal mass:drink
help helps helping helped - 帮助 帮助了 aider aidé aide aide aidons aident - - * person person,animal
wait waits waiting waited for 等 等了 attendre attendu attends attend attendons attendent - - * person person,vehicle
look looks looking looked for 找 找了 chercher cherché cherche cherche cherchons cherchent - - * person person,animal,gift
wash washes washing washed - 洗 洗了 laver lavé lave lave lavons lavent - - * person wash
open opens opening opened - 打开 打开了 ouvrir ouvert ouvre ouvre ouvrons ouvrent - - * person open
close closes closing closed - 关上 关上了 fermer fermé ferme ferme fermons ferment - - * person open
draw draws drawing drew - 画 画了 dessiner dessiné dessine dessine dessinons dessinent - - * person draw,animal
repair repairs repairing repaired - 修理 修理了 réparer réparé répare répare réparons réparent - - * person repair
visit visits visiting visited - 参观 参观了 visiter visité visite visite visitons visitent - - * person visit
write writes writing wrote - 写 写了 écrire écrit écris écrit écrivons écrivent - - * person write
feed feeds feeding fed - 喂 喂了 nourrir nourri nourris nourrit nourrissons nourrissent - - * person animal
protect protects protecting protected - 保护 保护了 protéger protégé protège protège protégeons protègent - - * person,animal person,animal,draw
clean cleans cleaning cleaned - 打扫 打扫了 nettoyer nettoyé nettoie nettoie nettoyons nettoient - - * person clean
give gives giving gave - 给 给了 donner donné donne donne donnons donnent - - * person gift
send sends sending sent - 寄给 寄给了 envoyer envoyé envoie envoie envoyons envoient - - * person gift
see see - saw - 看见 看见了 voir vu - - - - - - AFC person,animal person,animal,goods,thing,place
find find - found - 找到 找到了 trouver trouvé - - - - - - AFC person person,animal,gift
lose lose - lost - 弄丢 弄丢了 perdre perdu - - - - - - AF person gift
break break - broke - 打破 打破了 casser cassé - - - - - - AF person break
catch catch - caught - 抓住 抓住了 attraper attrapé - - - - - - AFC person,animal animal,catch
forget forget - forgot - 忘记 忘记了 oublier oublié - - - - - - AF person gift,write
meet meet - met - 遇见 遇见了 rencontrer rencontré - - - - - - AFC person person
hear hear - heard - 听见 听见了 entendre entendu - - - - - - AFC person,animal person,animal,sound
love loves - - - 爱 - aimer - aime aime aimons aiment - - PN person,animal person,animal
hate hates - - - 讨厌 - détester - déteste déteste détestons détestent - - PN person,animal person,animal
know knows - - - 认识 - connaître - connais connaît connaissons connaissent - - PN person person
sleep sleeps sleeping slept - 睡觉 睡了觉 dormir dormi dors dort dormons dorment - - * person,animal -
run runs running ran - 奔跑 奔跑了 courir couru cours court courons courent - - * person,animal -
swim swims swimming swam - 游泳 游了泳 nager nagé nage nage nageons nagent - - * person,animal -
dance dances dancing danced - 跳舞 跳了舞 danser dansé danse danse dansons dansent - - * person -
sing sings singing sang - 唱歌 唱了歌 chanter chanté chante chante chantons chantent - - * person -
work works working worked - 工作 工作了 travailler travaillé travaille travaille travaillons travaillent - - * person -
cry cries crying cried - 哭 哭了 pleurer pleuré pleure pleure pleurons pleurent - - * person -
laugh laughs laughing laughed - 笑 笑了 rire ri ris rit rions rient - - * person -
travel travels travelling travelled - 旅行 旅行了 voyager voyagé voyage voyage voyageons voyagent - - * person -
cook cooks cooking cooked - 做饭 做了饭 cuisiner cuisiné cuisine cuisine cuisinons cuisinent - - * person -
study studies studying studied - 学习 学习了 étudier étudié étudie étudie étudions étudient - - * person -
play plays playing played - 玩耍 玩耍了 jouer joué joue joue jouons jouent - - * person,animal -
arrive arrives - arrived - 到达 到达了 arriver arrivé arrive arrive arrivons arrivent - être PAF person,vehicle -
leave leaves - left - 离开 离开了 partir parti pars part partons partent - être PNAFCWU person,vehicle -
come_back comes_back - came_back - 回来 回来了 revenir revenu reviens revient revenons reviennent - être PNAFCWU person -
fall fall - fell - 摔倒 摔倒了 tomber tombé - - - - - être AF person,animal -
go goes - went to 去 去了 aller allé vais va allons vont à être PNAFCWU person site,city
""")  # noqa: E501
]

# French auxiliaries in the order je, il, nous, ils.
ETRE, AVOIR, ALLER = ("suis", "est", "sommes", "sont"), ("ai", "a", "avons", "ont"), ("vais", "va", "allons", "vont")
MODALS = {  # tense: English, Chinese, French
    "C": ("can", "能", ("peux", "peut", "pouvons", "peuvent")),
    "W": ("want", "想", ("veux", "veut", "voulons", "veulent")),
    "U": ("must", "必须", ("dois", "doit", "devons", "doivent")),
}
NUMBER_ROWS = _rows("""
one 一 un / two 两 deux / three 三 trois / four 四 quatre / five 五 cinq / six 六 six / seven 七 sept / eight 八 huit
nine 九 neuf / ten 十 dix / eleven 十一 onze / twelve 十二 douze
""")
NUMBERS = dict(enumerate(NUMBER_ROWS, start=1))


def number(count: int, lang: str) -> str:
    """A number as written: a word up to twelve, digits above."""
    return NUMBERS[count][LANGUAGES.index(lang)] if count in NUMBERS else str(count)


# ---- noun phrases ---------------------------------------------------------------------------------------------------


class NounPhrase(Protocol):
    """What can be subject or object: its words, and the features that verbs and adjectives agree with."""

    @property
    def person(self) -> int: ...
    @property
    def is_plural(self) -> bool: ...
    @property
    def gender(self) -> str: ...
    def en(self) -> list[str]: ...
    def zh(self) -> list[str]: ...
    def fr(self) -> list[str]: ...


@dataclass(frozen=True, eq=False, slots=True)
class Name:
    """A person or a city."""

    written: str
    written_zh: str
    written_fr: str
    gender: str
    person = 3
    is_plural = False

    def en(self) -> list[str]:
        return [self.written]

    def zh(self) -> list[str]:
        return [self.written_zh]

    def fr(self) -> list[str]:
        return [self.written_fr]


PEOPLE = [
    Name(en, zh, en, gender)
    for en, zh, gender in _rows("""
Paul 保罗 m / Anna 安娜 f / Marie 玛丽 f / David 大卫 m / Emma 艾玛 f / Julie 朱莉 f
Martin 马丁 m / Sophie 索菲 f / Victor 维克多 m / Alice 爱丽丝 f / Robert 罗伯特 m / Laura 劳拉 f
""")
]
CITIES = [
    Name(*row)
    for row in _rows("""
Paris 巴黎 Paris m / London 伦敦 Londres m / Beijing 北京 Pékin m / Berlin 柏林 Berlin m / Madrid 马德里 Madrid m
""")
]


@dataclass(frozen=True, eq=False, slots=True)
class Word:
    """A pronoun, or what a question asks for."""

    words: tuple[str, str, str]
    person: int = 3
    is_plural: bool = False
    gender: str = "m"

    def en(self) -> list[str]:
        return self.words[0].split()

    def zh(self) -> list[str]:
        return [self.words[1]]

    def fr(self) -> list[str]:
        return self.words[2].split()


I, WE = Word(("I", "我", "je"), person=1), Word(("we", "我们", "nous"), person=1, is_plural=True)  # noqa: E741
HE, SHE = Word(("he", "他", "il")), Word(("she", "她", "elle"), gender="f")
WHO, WHAT, WHERE = Word(("who", "谁", "qui")), Word(("what", "什么", "qu'")), Word(("where", "哪里", "où"))
WHEN, WHAT_TIME = Word(("when", "什么时候", "quand")), Word(("at what time", "几点", "à quelle heure"))

# Determiner: English, Chinese (# = measure word), French masculine, feminine; plural ones have one French form.
DETERMINERS = {
    "the": ("the", "", "le", "la"),
    "a": ("a", "一#", "un", "une"),
    "this": ("this", "这#", "ce", "cette"),
    "that": ("that", "那#", "ce", "cette"),
    "my": ("my", "我的", "mon", "ma"),
    "our": ("our", "我们的", "notre", "notre"),
    "the (plural)": ("the", "那些", "les"),
    "these": ("these", "这些", "ces"),
    "some": ("some", "一些", "des"),
    "many": ("many", "很多", "beaucoup de"),
    "number": ("", "", ""),
    "the number": ("the", "那", "les"),
    "how many": ("how many", "几#", "combien de"),
    "no": ("no", "", "de", "de"),
    "not a": ("a", "", "de", "de"),
}


@dataclass(frozen=True, slots=True)
class Nominal:
    """A counted noun with determiner, and perhaps a number, an adjective, an owner (who stands for "the")."""

    noun: Noun
    determiner: str = "the"
    adjective: Adjective | None = None
    count: int = 0
    owner: Nominal | Name | None = None

    @property
    def person(self) -> int:
        return 3

    @property
    def is_plural(self) -> bool:
        return len(DETERMINERS[self.determiner]) == 3

    @property
    def gender(self) -> str:
        return self.noun.gender

    def en(self) -> list[str]:
        words = DETERMINERS[self.determiner][0].split()
        if self.owner:
            *words, last = self.owner.en()
            words.append(f"{last}'s")
        words += [number(self.count, "en")] if self.count else []
        words += [self.adjective.en] if self.adjective else []
        return [*words, self.noun.en_plural if self.is_plural else self.noun.en]

    def zh(self) -> list[str]:
        counted = number(self.count, "zh") + "#" if self.count else ""
        determiner = (DETERMINERS[self.determiner][1] + counted).replace("#", self.noun.measure)
        if self.owner:
            determiner = "".join(self.owner.zh()) + "的"
        return [determiner, self.adjective.zh if self.adjective else "", self.noun.zh]

    def fr(self) -> list[str]:
        forms = DETERMINERS[self.determiner][2:]
        words = forms[-1 if self.gender == "f" else 0].split()
        words += [number(self.count, "fr")] if self.count else []
        noun = self.noun.fr_plural if self.is_plural else self.noun.fr
        if self.adjective and self.adjective.position == "before":
            adjective = agree(self.adjective, self)
            if self.adjective.fr_vowel and adjective == self.adjective.fr[0] and opens_with_vowel(noun):
                adjective = self.adjective.fr_vowel
            words = ["de"] if words == ["des"] else words  # de petits chats, but des chats noirs
            words += [adjective, noun]
        else:
            words += [noun, agree(self.adjective, self)] if self.adjective else [noun]
        if self.determiner == "that":
            words[-1] += "-là"
        return [*words, "de", *self.owner.fr()] if self.owner else words


@dataclass(frozen=True, slots=True)
class Pair:
    """Two people or things: Paul and Anna."""

    first: Name | Nominal
    second: Name | Nominal
    person = 3
    is_plural = True

    @property
    def gender(self) -> str:
        return "f" if self.first.gender == self.second.gender == "f" else "m"

    def en(self) -> list[str]:
        return [*self.first.en(), "and", *self.second.en()]

    def zh(self) -> list[str]:
        return [*self.first.zh(), "和", *self.second.zh()]

    def fr(self) -> list[str]:
        return [*self.first.fr(), "et", *self.second.fr()]


@dataclass(frozen=True, slots=True)
class Mass:
    """A substance, some of it (count 0) or so many cups or bottles of it."""

    noun: MassNoun
    count: int = 0

    @property
    def person(self) -> int:
        return 3

    @property
    def is_plural(self) -> bool:
        return self.count > 1

    @property
    def gender(self) -> str:
        return VESSELS[self.noun.vessel][5] if self.count else self.noun.gender

    def en(self) -> list[str]:
        if not self.count:
            return [self.noun.en]
        vessel = VESSELS[self.noun.vessel][self.is_plural]
        return ["a" if self.count == 1 else number(self.count, "en"), vessel, "of", self.noun.en]

    def zh(self) -> list[str]:
        return [number(self.count, "zh") + VESSELS[self.noun.vessel][2] if self.count else "", self.noun.zh]

    def fr(self, is_negated: bool = False) -> list[str]:
        if not self.count:
            article = [] if is_negated else ["la" if self.gender == "f" else "le"]
            return ["de", *article, self.noun.fr]  # du thé, de l'eau; pas de thé, pas d'eau
        one = "une" if self.gender == "f" else "un"
        vessel = VESSELS[self.noun.vessel][3 + self.is_plural]
        return [one if self.count == 1 else number(self.count, "fr"), vessel, "de", self.noun.fr]


def agree(adjective: Adjective, noun_phrase: NounPhrase) -> str:
    """The French form that fits gender and number."""
    return adjective.fr[(noun_phrase.gender == "f") + 2 * noun_phrase.is_plural]


# ---- where and when -------------------------------------------------------------------------------------------------

PREPOSITIONS = {  # English, Chinese after the noun, French
    "at": ("at", "", "à"),
    "in a city": ("in", "", "à"),
    "in": ("in", "里", "dans"),
    "on": ("on", "上", "sur"),
    "under": ("under", "下面", "sous"),
    "behind": ("behind", "后面", "derrière"),
    "in front of": ("in front of", "前面", "devant"),
    "next to": ("next to", "旁边", "à côté de"),
    "near": ("near", "附近", "près de"),
}


@dataclass(frozen=True, slots=True)
class Place:
    preposition: str
    ground: Nominal | Name

    def en(self) -> list[str]:
        return [*PREPOSITIONS[self.preposition][0].split(), *self.ground.en()]

    def zh(self) -> list[str]:
        """The spot itself, without 在."""
        return [*self.ground.zh(), PREPOSITIONS[self.preposition][1]]

    def fr(self) -> list[str]:
        return [*PREPOSITIONS[self.preposition][2].split(), *self.ground.fr()]


OFTEN, ALWAYS = Word(("often", "经常", "souvent")), Word(("always", "总是", "toujours"))
NOW = Word(("now", "现在", "maintenant"))
TIMES = {  # by the tenses that they go with
    "P": [
        OFTEN,
        ALWAYS,
        Word(("every day", "每天", "tous les jours")),
        Word(("in the morning", "早上", "le matin")),
        Word(("in the evening", "晚上", "le soir")),
    ],
    "G": [NOW],
    "A": [Word(("yesterday", "昨天", "hier")), Word(("last week", "上周", "la semaine dernière"))],
    "F": [
        Word(("tomorrow", "明天", "demain")),
        Word(("next week", "下周", "la semaine prochaine")),
        Word(("tonight", "今晚", "ce soir")),
    ],
}


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day: `minute` 0, 15, 30, 45 in words for hours 1 to 12, any two digits for 13 to 23."""

    hour: int
    minute: int

    def en(self) -> list[str]:
        if self.hour > 12:
            return [f"{self.hour}:{self.minute}"]
        hour = number(self.hour % 12 + 1 if self.minute == 45 else self.hour, "en")
        words = {
            0: f"{hour} o'clock",
            15: f"a quarter past {hour}",
            30: f"half past {hour}",
            45: f"a quarter to {hour}",
        }
        return words[self.minute].split()

    def zh(self) -> list[str]:
        if self.hour > 12:
            return [f"{self.hour}点{self.minute}分"]
        hour = number(self.hour % 12 + 1 if self.minute == 45 else self.hour, "zh") + "点"
        return [{0: hour, 15: f"{hour}一刻", 30: f"{hour}半", 45: f"差一刻{hour}"}[self.minute]]

    def fr(self) -> list[str]:
        if self.hour > 12:
            return f"{self.hour} h {self.minute}".split()
        hour = self.hour % 12 + 1 if self.minute == 45 else self.hour
        minutes = {0: "", 15: "et quart", 30: "et demie", 45: "moins le quart"}[self.minute]
        return ["une", "heure", *minutes.split()] if hour == 1 else [number(hour, "fr"), "heures", *minutes.split()]


@dataclass(frozen=True, slots=True)
class At:
    clock: Clock

    def en(self) -> list[str]:
        return ["at", *self.clock.en()]

    def zh(self) -> list[str]:
        return self.clock.zh()

    def fr(self) -> list[str]:
        return ["à", *self.clock.fr()]


# ---- sentences ------------------------------------------------------------------------------------------------------


class Meaning(Protocol):
    """What one line says: the words in each language and the final mark (. ? ! or "" for a fragment)."""

    @property
    def mark(self) -> str: ...
    def en(self) -> list[str]: ...
    def zh(self) -> list[str]: ...
    def fr(self) -> list[str]: ...


def person_form(subject: NounPhrase, forms: tuple[str, str, str, str]) -> str:
    """The French form out of je, il, nous, ils."""
    return forms[2 * subject.is_plural + (subject.person == 3)]


def is_third(subject: NounPhrase) -> bool:
    return subject.person == 3 and not subject.is_plural


def be(subject: NounPhrase) -> str:
    return "is" if is_third(subject) else "am" if subject is I else "are"


def do(subject: NounPhrase) -> str:
    return "does" if is_third(subject) else "do"


@dataclass(frozen=True, slots=True)
class Clause:
    """A verb with its subject and all that may follow. Polarity: yes, no, never. Tenses: letters of TENSES.

    WHO, WHAT, WHERE, WHEN, WHAT_TIME in the place of a phrase ask for it; `is_question` asks for yes or no.
    """

    subject: NounPhrase
    verb: Verb
    tense: str = "P"
    polarity: str = "yes"
    is_question: bool = False
    object: NounPhrase | None = None
    recipient: Name | Nominal | None = None
    place: Place | Word | None = None
    time: Word | At | None = None

    @property
    def asked(self) -> Word | None:
        """The asked phrase other than the subject: it goes to the front in English and French."""
        wanted = (WHO, WHAT, WHERE, WHEN, WHAT_TIME)
        return next((x for x in (self.object, self.place, self.time) if isinstance(x, Word) and x in wanted), None)

    @property
    def mark(self) -> str:
        return "?" if self.is_question or self.asked or self.subject is WHO else "."

    def en(self) -> list[str]:
        verb, third, negated = self.verb, is_third(self.subject), self.polarity == "no"
        is_inverted = self.is_question or self.asked is not None
        auxiliary = {"P": "", "G": be(self.subject), "A": "", "F": "will", "C": "can", "W": "", "U": "must"}[self.tense]
        finite = {"P": verb.en_third if third else verb.en, "G": verb.en_ing, "A": verb.en_past}
        main = finite.get(self.tense, verb.en)
        if self.tense == "W":
            main = f"{'wants' if third else 'want'} to {verb.en}"
        if not auxiliary and (is_inverted or negated):
            auxiliary = "did" if self.tense == "A" else do(self.subject)
            main = f"want to {verb.en}" if self.tense == "W" else verb.en
        if negated:
            auxiliary = "cannot" if auxiliary == "can" else f"{auxiliary} not"
        middle = "never" if self.polarity == "never" else self.time.en()[0] if self.time in (OFTEN, ALWAYS) else ""
        subject = self.subject.en()
        words = [*self.asked.en(), auxiliary, *subject] if self.asked else [auxiliary, *subject]
        words = words if is_inverted else [*subject, *auxiliary.split()]
        words += [*middle.split(), *main.split()]
        if self.object and self.object is not self.asked:
            words += [*verb.en_preposition.split(), *self.object.en()]
        elif self.object and self.object is not WHERE:
            words += verb.en_preposition.split()
        words += ["to", *self.recipient.en()] if self.recipient else []
        words += self.place.en() if self.place and self.place is not self.asked else []
        words += self.time.en() if self.time and self.time is not self.asked and not middle else []
        return [word for word in words if word]

    def zh(self) -> list[str]:
        before = {
            "P": {"yes": "", "no": "不", "never": "从不"},
            "G": {"yes": "正" if self.place else "正在"},
            "A": {"yes": "", "no": "没有"},
            "F": {"yes": "会", "no": "不会"},
            "U": {"yes": "必须"},
            **{tense: {"yes": MODALS[tense][1], "no": "不" + MODALS[tense][1]} for tense in "CW"},
        }[self.tense][self.polarity]
        words = [*self.subject.zh(), *(self.time.zh() if self.time else []), before]
        words += ["在", *self.place.zh()] if self.place else []
        words += [self.verb.zh_past if (self.tense, self.polarity) == ("A", "yes") else self.verb.zh]
        words += self.recipient.zh() if self.recipient else []
        words += self.object.zh() if self.object else []
        return [*words, "吗" if self.is_question else ""]

    def fr(self) -> list[str]:
        verb, subject = self.verb, self.subject
        infinitive = [verb.fr]
        if self.tense == "P":
            finite, rest = person_form(subject, verb.fr_present), []
        elif self.tense == "G":
            finite, rest = person_form(subject, ETRE), ["en", "train", "de", *infinitive]
        elif self.tense == "A":
            agreement = ("e" if subject.gender == "f" else "") + ("s" if subject.is_plural else "")
            participle = verb.fr_participle + (agreement if verb.auxiliary else "")
            finite, rest = person_form(subject, ETRE if verb.auxiliary else AVOIR), [participle]
        else:
            finite, rest = person_form(subject, ALLER if self.tense == "F" else MODALS[self.tense][2]), infinitive
        frame = {"yes": [finite], "no": ["ne", finite, "pas"], "never": ["ne", finite, "jamais"]}[self.polarity]
        is_middle = self.time in (OFTEN, ALWAYS)
        words = [*subject.fr(), *frame, *(self.time.fr() if self.time and is_middle else []), *rest]
        if self.asked:
            words = [*self.asked.fr(), "est-ce", "que", *words]
        elif self.is_question:
            words = ["est-ce", "que", *words]
        if isinstance(self.object, Mass):
            words += self.object.fr(is_negated=self.polarity != "yes")
        elif self.object and self.object is not self.asked:
            words += [*verb.fr_preposition.split(), *self.object.fr()]
        words += ["à", *self.recipient.fr()] if self.recipient else []
        words += self.place.fr() if self.place and self.place is not self.asked else []
        words += self.time.fr() if self.time and self.time is not self.asked and not is_middle else []
        return words


class Predicate(Protocol):
    def en(self) -> list[str]: ...
    def zh(self, is_negated: bool, is_question: bool) -> list[str]: ...
    def fr(self, subject: NounPhrase) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Copula:
    """Subject, "is" or "is not", predicate; also as a question."""

    subject: NounPhrase
    predicate: Predicate
    is_negated: bool = False
    is_question: bool = False

    @property
    def mark(self) -> str:
        return "?" if self.is_question else "."

    def en(self) -> list[str]:
        subject, verb = self.subject.en(), be(self.subject)
        words = [verb, *subject] if self.is_question else [*subject, verb, *(["not"] if self.is_negated else [])]
        return [*words, *self.predicate.en()]

    def zh(self) -> list[str]:
        words = [*self.subject.zh(), *self.predicate.zh(self.is_negated, self.is_question)]
        return [*words, "吗" if self.is_question else ""]

    def fr(self) -> list[str]:
        verb = person_form(self.subject, ETRE)
        asking = ["est-ce", "que"] if self.is_question else []
        frame = ["ne", verb, "pas"] if self.is_negated else [verb]
        return [*asking, *self.subject.fr(), *frame, *self.predicate.fr(self.subject)]


@dataclass(frozen=True, slots=True)
class Quality:
    """An adjective: plain, very or too; or compared with another."""

    adjective: Adjective
    degree: str = ""
    other: NounPhrase | None = None

    def en(self) -> list[str]:
        if self.other:
            return [*self.adjective.en_more.split(), "than", *self.other.en()]
        return [*self.degree.split(), self.adjective.en]

    def zh(self, is_negated: bool, is_question: bool) -> list[str]:
        if self.adjective.is_colour:
            return ["不是" if is_negated else "是", self.adjective.zh_predicate]
        if self.other:
            return ["比", *self.other.zh(), self.adjective.zh_predicate]
        plain = "不" if is_negated else "" if is_question else "很"
        before, after = {"": (plain, ""), "very": ("非常", ""), "too": ("太", "了")}[self.degree]
        return [before, self.adjective.zh_predicate, after]

    def fr(self, subject: NounPhrase) -> list[str]:
        adjective = agree(self.adjective, subject)
        if self.other:
            return ["plus", adjective, "que", *self.other.fr()]
        return [*{"": [], "very": ["très"], "too": ["trop"]}[self.degree], adjective]


@dataclass(frozen=True, slots=True)
class Location:
    place: Place

    def en(self) -> list[str]:
        return self.place.en()

    def zh(self, is_negated: bool, is_question: bool) -> list[str]:
        return ["不在" if is_negated else "在", *self.place.zh()]

    def fr(self, subject: NounPhrase) -> list[str]:
        return self.place.fr()


@dataclass(frozen=True, slots=True)
class Profession:
    noun: Noun

    def en(self) -> list[str]:
        return ["a", self.noun.en]

    def zh(self, is_negated: bool, is_question: bool) -> list[str]:
        return ["不是" if is_negated else "是", self.noun.zh]

    def fr(self, subject: NounPhrase) -> list[str]:
        return [self.noun.fr]


@dataclass(frozen=True, slots=True)
class ThisIs:
    """This is a cat."""

    what: Nominal
    is_negated: bool = False
    is_question: bool = False

    @property
    def mark(self) -> str:
        return "?" if self.is_question else "."

    def en(self) -> list[str]:
        return [*(["is", "this"] if self.is_question else ["this", "is"]), *["not"][: self.is_negated], *self.what.en()]

    def zh(self) -> list[str]:
        return ["这不是" if self.is_negated else "这是", *self.what.zh(), "吗" if self.is_question else ""]

    def fr(self) -> list[str]:
        words = ["ce", "n'est", "pas"] if self.is_negated else ["c'est"]
        return [*(["est-ce", "que"] if self.is_question else []), *words, *self.what.fr()]


@dataclass(frozen=True, slots=True)
class ThereIs:
    """There are three cats in the garden; `what` may be "no" or "how many"."""

    what: Nominal
    place: Place
    is_question: bool = False

    @property
    def mark(self) -> str:
        return "?" if self.is_question or self.what.determiner == "how many" else "."

    def en(self) -> list[str]:
        verb = "are" if self.what.is_plural else "is"
        if self.what.determiner == "how many":
            return [*self.what.en(), verb, "there", *self.place.en()]
        return [*([verb, "there"] if self.is_question else ["there", verb]), *self.what.en(), *self.place.en()]

    def zh(self) -> list[str]:
        verb = "没有" if self.what.determiner == "no" else "有"
        return [*self.place.zh(), verb, *self.what.zh(), "吗" if self.is_question else ""]

    def fr(self) -> list[str]:
        if self.what.determiner == "how many":
            return [*self.what.fr(), "y", "a-t-il", *self.place.fr()]
        words = ["il", "n'y", "a", "pas"] if self.what.determiner == "no" else ["il", "y", "a"]
        return [*(["est-ce", "que"] if self.is_question else []), *words, *self.what.fr(), *self.place.fr()]


@dataclass(frozen=True, slots=True)
class Have:
    """The man has a book; `what` may be "not a" or "how many"."""

    subject: NounPhrase
    what: Nominal
    is_question: bool = False

    @property
    def mark(self) -> str:
        return "?" if self.is_question or self.what.determiner == "how many" else "."

    def en(self) -> list[str]:
        subject, what = self.subject.en(), self.what.en()
        if self.what.determiner == "how many":
            return [*what, do(self.subject), *subject, "have"]
        if self.what.determiner == "not a":
            return [*subject, do(self.subject), "not", "have", *what]
        if self.is_question:
            return [do(self.subject), *subject, "have", *what]
        return [*subject, "has" if is_third(self.subject) else "have", *what]

    def zh(self) -> list[str]:
        verb = "没有" if self.what.determiner == "not a" else "有"
        return [*self.subject.zh(), verb, *self.what.zh(), "吗" if self.is_question else ""]

    def fr(self) -> list[str]:
        subject, verb = self.subject.fr(), person_form(self.subject, AVOIR)
        if self.what.determiner == "how many":
            return [*self.what.fr(), "est-ce", "que", *subject, verb]
        words = [*subject, *(["ne", verb, "pas"] if self.what.determiner == "not a" else [verb]), *self.what.fr()]
        return ["est-ce", "que", *words] if self.is_question else words


@dataclass(frozen=True, slots=True)
class Measure:
    """How old somebody is or what a thing costs."""

    subject: NounPhrase
    kind: str
    count: int
    mark = "."

    def en(self) -> list[str]:
        count = number(self.count, "en")
        tail = [be(self.subject), count, "years", "old"] if self.kind == "age" else ["costs", count, "euros"]
        return [*self.subject.en(), *tail]

    def zh(self) -> list[str]:
        count = number(self.count, "zh")
        return [*self.subject.zh(), *([count, "岁"] if self.kind == "age" else ["要", count, "欧元"])]

    def fr(self) -> list[str]:
        count = number(self.count, "fr")
        tail = [person_form(self.subject, AVOIR), count, "ans"] if self.kind == "age" else ["coûte", count, "euros"]
        return [*self.subject.fr(), *tail]


@dataclass(frozen=True, slots=True)
class Ask:
    """A question about where, how old, how much, which colour."""

    kind: str
    subject: Nominal | Name
    mark = "?"

    def en(self) -> list[str]:
        verb, subject = be(self.subject), self.subject.en()
        before = {"where": ["where", verb], "age": ["how", "old", verb], "colour": ["what", "colour", verb]}
        return [*before[self.kind], *subject] if self.kind in before else ["how", "much", "does", *subject, "cost"]

    def zh(self) -> list[str]:
        after = {"where": "在哪里", "age": "多大", "colour": "是什么颜色的", "price": "多少钱"}
        return [*self.subject.zh(), after[self.kind]]

    def fr(self) -> list[str]:
        verb = person_form(self.subject, ETRE)
        before = {"where": ["où", verb], "age": ["quel", "âge", "a"], "price": ["combien", "coûte"]}
        return [*before.get(self.kind, ["de", "quelle", "couleur", verb]), *self.subject.fr()]


@dataclass(frozen=True, slots=True)
class TimeIs:
    clock: Clock
    mark = "."

    def en(self) -> list[str]:
        return ["it", "is", *self.clock.en()]

    def zh(self) -> list[str]:
        return ["现在", *self.clock.zh()]

    def fr(self) -> list[str]:
        return ["il", "est", *self.clock.fr()]


SPEECH = {  # English I, he; Chinese
    "say": ("say", "says", "说"),
    "think": ("think", "thinks", "认为"),
    "know": ("know", "knows", "知道"),
}
FRENCH_SPEECH = {  # je, il, nous, ils
    "say": ("dis", "dit", "disons", "disent"),
    "think": ("pense", "pense", "pensons", "pensent"),
    "know": ("sais", "sait", "savons", "savent"),
}


@dataclass(frozen=True, slots=True)
class Speech:
    """Paul says that the cat sleeps."""

    subject: Name | Word
    verb: str
    content: Clause | Copula
    mark = "."

    def en(self) -> list[str]:
        return [*self.subject.en(), SPEECH[self.verb][is_third(self.subject)], "that", *self.content.en()]

    def zh(self) -> list[str]:
        return [*self.subject.zh(), SPEECH[self.verb][2], *self.content.zh()]

    def fr(self) -> list[str]:
        return [*self.subject.fr(), person_form(self.subject, FRENCH_SPEECH[self.verb]), "que", *self.content.fr()]


@dataclass(frozen=True, slots=True)
class Joined:
    """Two sentences with "and" or "but", or one after "yes" or "no"."""

    link: str
    first: Clause | Copula
    second: Clause | Copula | None = None
    mark = "."

    def _join(self, first: list[str], second: list[str], links: dict[str, list[str]]) -> list[str]:
        return [*first, *links[self.link], *second] if self.second else [*links[self.link], *first]

    def en(self) -> list[str]:
        links = {"and": ["and"], "but": [",", "but"], "yes": ["yes", ","], "no": ["no", ","]}
        return self._join(self.first.en(), self.second.en() if self.second else [], links)

    def zh(self) -> list[str]:
        links = {"and": ["，而"], "but": ["，但是"], "yes": ["是的，"], "no": ["不，"]}
        return self._join(self.first.zh(), self.second.zh() if self.second else [], links)

    def fr(self) -> list[str]:
        links = {"and": ["et"], "but": [",", "mais"], "yes": ["oui", ","], "no": ["non", ","]}
        return self._join(self.first.fr(), self.second.fr() if self.second else [], links)


GREETINGS = [
    Word(words)
    for words in (
        ("hello", "你好", "bonjour"),
        ("hi", "嗨", "salut"),
        ("good evening", "晚上好", "bonsoir"),
        ("good night", "晚安", "bonne nuit"),
        ("goodbye", "再见", "au revoir"),
        ("thank you", "谢谢", "merci"),
        ("welcome", "欢迎", "bienvenue"),
        ("happy birthday", "生日快乐", "joyeux anniversaire"),
    )
]


@dataclass(frozen=True, slots=True)
class Greeting:
    """Hello! Hello, Paul! Hello, Paul! It is three o'clock."""

    greeting: Word
    name: Name | None = None
    clock: Clock | None = None
    mark = "!"

    def en(self) -> list[str]:
        return [*self.greeting.en(), *([",", *self.name.en()] if self.name else [])]

    def zh(self) -> list[str]:
        return [*self.greeting.zh(), *(["，", *self.name.zh()] if self.name else [])]

    def fr(self) -> list[str]:
        return [*self.greeting.fr(), *([",", *self.name.fr()] if self.name else [])]


@dataclass(frozen=True, slots=True)
class Fragment:
    """A phrase by itself: a small cat; at half past three."""

    phrase: Nominal | Mass | Place | At
    mark = ""

    def en(self) -> list[str]:
        return self.phrase.en()

    def zh(self) -> list[str]:
        return ["在", *self.phrase.zh()] if isinstance(self.phrase, Place) else self.phrase.zh()

    def fr(self) -> list[str]:
        return self.phrase.fr()


# ---- spelling -------------------------------------------------------------------------------------------------------

_CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
_ELIDED = {"le", "la", "de", "que", "ne", "je"}
_BEFORE_VOWEL = {"ce": "cet", "ma": "mon"}


def opens_with_vowel(word: str) -> bool:
    """Whether French elides before the word; every h of this vocabulary is mute."""
    return word[0].lower() in "aeiouhâàéèêëîïôœ" and word not in ("huit", "onze")


def spell_en(words: list[str]) -> str:
    following = [*words[1:], ""]
    text = " ".join(
        "an" if word == "a" and after[:1].lower() in tuple("aeiou") else word
        for word, after in zip(words, following, strict=True)
    )
    return text.replace(" ,", ",")


def spell_zh(words: list[str]) -> str:
    return "".join(words)


def spell_fr(words: list[str]) -> str:
    spelt: list[str] = []
    for word, after in zip(words, [*words[1:], "."], strict=True):
        before = spelt[-1] if spelt else ""
        if (before, word) in _CONTRACTED and not (word == "le" and opens_with_vowel(after)):
            spelt[-1] = _CONTRACTED[before, word]
            continue
        if opens_with_vowel(word):
            if before in _ELIDED:
                spelt[-1] = before[:-1] + "'"
            spelt[-1:] = [_BEFORE_VOWEL.get(before, spelt[-1])] if spelt else []
        spelt.append(word)
    return " ".join(spelt).replace("' ", "'").replace(" ,", ",")


def render(words: dict[str, list[str]], mark: str) -> dict[str, str]:
    """The sentence in each language; a mark of "" means a fragment, which takes neither capital nor mark."""
    text = {"en": spell_en(words["en"]), "zh": spell_zh(words["zh"]), "fr": spell_fr(words["fr"])}
    if not mark:
        return text
    return {
        "en": text["en"][0].upper() + text["en"][1:] + mark,
        "zh": text["zh"] + {".": "。", "?": "？", "!": "！"}[mark],
        "fr": text["fr"][0].upper() + text["fr"][1:] + ("." if mark == "." else f" {mark}"),
    }


def sentence(meaning: Meaning) -> dict[str, str]:
    """The one sentence in each language."""
    text = render({"en": meaning.en(), "zh": meaning.zh(), "fr": meaning.fr()}, meaning.mark)
    if isinstance(meaning, Greeting) and meaning.clock:
        time = sentence(TimeIs(meaning.clock))
        return {lang: text[lang] + ("" if lang == "zh" else " ") + time[lang] for lang in text}
    return text
